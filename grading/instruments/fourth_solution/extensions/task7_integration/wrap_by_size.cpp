#include <wrap_by_size.h>

#include <map>
#include <utility>

namespace fsdp {
namespace {

// Chooses from the leaves up. A module with two names is looked at once.
class BySize {
 public:
  BySize(Module& root, int64_t bytes) : root_(root), bytes_(bytes) { outside_units(root); }

  std::vector<Module*> chosen() && { return std::move(chosen_); }

 private:
  using Bytes = std::map<const c10::TensorImpl*, size_t>;  // of distinct parameters

  // The parameters in and below `module` that no unit in or below it holds.
  const Bytes& outside_units(torch::nn::Module& module) {
    if (const auto known = outside_.find(&module); known != outside_.end()) return known->second;
    Bytes outside;
    for (const at::Tensor& parameter : module.parameters(/*recurse=*/false))
      outside.emplace(parameter.unsafeGetTensorImpl(), parameter.nbytes());
    for (const auto& child : module.children())
      outside.merge(Bytes(outside_units(*child)));
    if (becomes_unit(module, outside)) outside.clear();
    return outside_.emplace(&module, std::move(outside)).first->second;
  }

  bool becomes_unit(torch::nn::Module& module, const Bytes& outside) {
    auto* hookable = dynamic_cast<Module*>(&module);
    int64_t total = 0;
    for (const auto& [parameter, bytes] : outside)
      total += static_cast<int64_t>(bytes);
    if (!hookable || hookable == &root_ || total < bytes_) return false;
    chosen_.push_back(hookable);
    return true;
  }

  const Module& root_;
  int64_t bytes_;
  std::map<const torch::nn::Module*, Bytes> outside_;
  std::vector<Module*> chosen_;
};

}  // namespace

WrapPolicy wrap_by_size(int64_t bytes) {
  return [bytes](Module& root) { return BySize(root, bytes).chosen(); };
}

}  // namespace fsdp
