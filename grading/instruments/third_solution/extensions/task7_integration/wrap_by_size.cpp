#include <wrap_by_size.h>

#include <algorithm>
#include <set>

namespace fsdp {
namespace {

using Tensors = std::set<const c10::TensorImpl*>;

// The walk of wrap_by_size(). A module that has been seen keeps its decision.
struct SizeWalk {
  int64_t bytes;
  std::vector<Module*> chosen;
  std::set<const torch::nn::Module*> done;
};

int64_t bytes_of(const std::vector<at::Tensor>& tensors) {
  Tensors seen;
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) {
    if (seen.insert(tensor.unsafeGetTensorImpl()).second)
      bytes += tensor.numel() * static_cast<int64_t>(tensor.element_size());
  }
  return bytes;
}

bool is_chosen(const SizeWalk& walk, const torch::nn::Module* module) {
  return std::ranges::find(walk.chosen, module) != walk.chosen.end();
}

// Decides about `module`, below it first. Returns its parameters outside units at or below it.
std::vector<at::Tensor> left_over(SizeWalk& walk, torch::nn::Module& module, bool is_root) {
  std::vector<at::Tensor> rest;
  for (const at::Tensor& parameter : module.parameters(/*recurse=*/false))
    if (parameter.defined()) rest.push_back(parameter);
  for (const auto& child : module.children()) {
    const std::vector<at::Tensor> more = left_over(walk, *child, false);
    rest.insert(rest.end(), more.begin(), more.end());
  }
  if (is_root) return rest;
  auto* hookable = dynamic_cast<Module*>(&module);
  if (walk.done.insert(&module).second && hookable && bytes_of(rest) >= walk.bytes)
    walk.chosen.push_back(hookable);
  return is_chosen(walk, &module) ? std::vector<at::Tensor>() : rest;
}

}  // namespace

WrapPolicy wrap_by_size(int64_t bytes) {
  return [bytes](Module& root) {
    SizeWalk walk{bytes, {}, {}};
    left_over(walk, root, true);
    return walk.chosen;
  };
}

}  // namespace fsdp
