#include <wrap_by_size.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

namespace fsdp {
namespace {

using BytesOfEach = std::map<const c10::TensorImpl*, int64_t>;

// Returns the parameters in or below the module that are in no unit, after it has added the units
// at the bottom to `chosen`.
BytesOfEach left_over(torch::nn::Module& module, int64_t bytes, std::vector<Module*>& chosen,
                      bool is_root) {
  BytesOfEach left;
  for (const auto& child : module.children())
    left.merge(left_over(*child, bytes, chosen, /*is_root=*/false));
  for (const at::Tensor& parameter : module.parameters(/*recurse=*/false))
    left[parameter.unsafeGetTensorImpl()] = static_cast<int64_t>(parameter.nbytes());

  auto* unit = dynamic_cast<Module*>(&module);
  const int64_t sum = std::transform_reduce(left.begin(), left.end(), int64_t{0}, std::plus<>(),
                                            [](const auto& parameter) { return parameter.second; });
  if (is_root || !unit || sum < bytes) return left;
  if (std::ranges::find(chosen, unit) == chosen.end()) chosen.push_back(unit);
  return {};
}

}  // namespace

WrapPolicy wrap_by_size(int64_t bytes) {
  return [bytes](Module& root) {
    std::vector<Module*> chosen;
    left_over(root, bytes, chosen, /*is_root=*/true);
    return chosen;
  };
}

}  // namespace fsdp
