#include <check_hookable.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>

namespace fsdp {
namespace {

using IsUnit = std::function<bool(const Module&)>;

// Throws std::invalid_argument if a unit in `module` is a child of a torch::nn::Sequential. `path`:
// the name of `module` with a dot after it; empty for the root.
void check(const torch::nn::Module& module, const std::string& path, const IsUnit& is_unit) {
  const bool runs_no_hooks = dynamic_cast<const torch::nn::SequentialImpl*>(&module) != nullptr;
  for (const auto& item : module.named_children()) {
    const auto* child = dynamic_cast<const Module*>(item.value().get());
    if (runs_no_hooks && child != nullptr && is_unit(*child)) {
      throw std::invalid_argument(path + item.key() + " (" + child->name() +
                                  ") lies in a torch::nn::Sequential, which calls forward() and so "
                                  "runs no hooks; use an fsdp::Sequential");
    }
    check(*item.value(), path + item.key() + ".", is_unit);
  }
}

}  // namespace

void check_hookable(const torch::nn::Module& root, const std::vector<Module*>& units) {
  check(root, "", [&](const Module& module) { return std::ranges::count(units, &module) != 0; });
}

void check_hookable(const torch::nn::Module& root) {
  check(root, "", [](const Module&) { return true; });
}

}  // namespace fsdp
