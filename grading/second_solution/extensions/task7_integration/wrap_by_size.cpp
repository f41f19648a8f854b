#include <wrap_by_size.h>

#include <algorithm>
#include <set>

namespace fsdp {
namespace {

// One walk of wrap_by_size, children before parents.
struct SizeWalk {
  using Parameters = std::set<at::Tensor, bool (*)(const at::Tensor&, const at::Tensor&)>;
  int64_t at_least;
  const torch::nn::Module* root;
  std::vector<Module*> chosen;

  // Returns the parameters in `module` that are in none of the chosen.
  Parameters visit(torch::nn::Module& module) {
    Parameters left([](const at::Tensor& one, const at::Tensor& other) {
      return one.unsafeGetTensorImpl() < other.unsafeGetTensorImpl();
    });
    for (const auto& child : module.children())
      left.merge(visit(*child));
    for (const at::Tensor& parameter : module.parameters(/*recurse=*/false))
      left.insert(parameter);

    int64_t bytes = 0;
    for (const at::Tensor& parameter : left)
      bytes += static_cast<int64_t>(parameter.nbytes());
    auto* hookable = dynamic_cast<Module*>(&module);
    if (!hookable || &module == root || bytes < at_least) return left;
    if (std::find(chosen.begin(), chosen.end(), hookable) == chosen.end())
      chosen.push_back(hookable);
    left.clear();
    return left;
  }
};

}  // namespace

WrapPolicy wrap_by_size(int64_t bytes) {
  return [bytes](Module& root) {
    SizeWalk walk{bytes, &root, {}};
    walk.visit(root);
    return walk.chosen;
  };
}

}  // namespace fsdp
