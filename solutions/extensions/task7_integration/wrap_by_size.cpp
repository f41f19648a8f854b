#include <wrap_by_size.h>

#include <algorithm>
#include <set>

namespace fsdp {
namespace {

using Parameters = std::set<at::TensorImpl*>;  // each once, whatever names it has

// Adds to `chosen` the modules of the tree under `module` that wrap_by_size() chooses, and to
// `parameters` the parameters that no chosen module holds.
void choose_by_size(torch::nn::Module& module, int64_t bytes, bool root,
                    std::vector<Module*>& chosen, Parameters& parameters) {
  Parameters left;
  int64_t size = 0;
  for (const auto& child : module.children())
    choose_by_size(*child, bytes, false, chosen, left);
  for (const auto& parameter : module.parameters(/*recurse=*/false))
    left.insert(parameter.unsafeGetTensorImpl());
  for (const at::TensorImpl* parameter : left)
    size += parameter->numel() * static_cast<int64_t>(parameter->itemsize());
  auto* hookable = dynamic_cast<Module*>(&module);
  if (!root && hookable != nullptr && size >= bytes) {
    const bool seen = std::ranges::count(chosen, hookable) != 0;
    if (!seen) chosen.push_back(hookable);
    return;
  }
  parameters.merge(left);
}

}  // namespace

WrapPolicy wrap_by_size(int64_t bytes) {
  return [bytes](Module& root) {
    std::vector<Module*> chosen;
    Parameters left;
    choose_by_size(root, bytes, true, chosen, left);
    return chosen;
  };
}

}  // namespace fsdp
