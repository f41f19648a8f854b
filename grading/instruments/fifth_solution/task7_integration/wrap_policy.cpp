#include <wrap_policy.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace fsdp {
namespace {

std::string_view class_of(const Module& module) {
  const std::string_view name = module.name();
  return name.substr(name.rfind(':') + 1);  // from the beginning if there is no colon
}

// The modules below the root that can be hooked and that `choose` takes, each once.
std::vector<Module*> modules_below(Module& root, const std::function<bool(const Module&)>& choose) {
  std::vector<Module*> chosen;
  std::set<const Module*> seen{&root};
  for (const std::shared_ptr<torch::nn::Module>& module : root.modules(/*include_self=*/false)) {
    auto* hookable = dynamic_cast<Module*>(module.get());
    if (hookable && seen.insert(hookable).second && choose(*hookable)) chosen.push_back(hookable);
  }
  return chosen;
}

}  // namespace

WrapPolicy wrap_blocks() {
  return [](Module& root) {
    return modules_below(root,
                         [](const Module& module) { return class_of(module).ends_with("Block"); });
  };
}

WrapPolicy wrap_by_type(std::string class_name) {
  return [class_name](Module& root) {
    std::set<std::string_view> classes;  // of all, sorted
    const auto chosen = modules_below(root, [&](const Module& module) {
      classes.insert(class_of(module));
      return class_of(module) == class_name;
    });
    if (!chosen.empty()) return chosen;

    std::ostringstream message;
    message << "wrap policy: no module of type " << class_name << "; there are ";
    for (const char* separator = ""; const std::string_view name : classes)
      message << std::exchange(separator, ", ") << name;
    throw std::invalid_argument(message.str());
  };
}

}  // namespace fsdp
