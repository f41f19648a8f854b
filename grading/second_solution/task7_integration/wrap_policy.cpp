#include <wrap_policy.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <unordered_set>

namespace fsdp {
namespace {

// Without its namespace.
std::string class_of(const Module& module) {
  return module.name().substr(module.name().find_last_of(':') + 1);
}

// Calls `visit` once with each module below `root` that can be hooked.
void for_each_module(Module& root, const std::function<void(Module&)>& visit) {
  std::unordered_set<const torch::nn::Module*> seen;
  root.apply([&](torch::nn::Module& module) {
    auto* hookable = dynamic_cast<Module*>(&module);
    if (hookable && hookable != &root && seen.insert(&module).second) visit(*hookable);
  });
}

WrapPolicy wrap_classes(const std::function<bool(const std::string&)>& wanted) {
  return [wanted](Module& root) {
    std::vector<Module*> modules;
    for_each_module(root, [&](Module& module) {
      if (wanted(class_of(module))) modules.push_back(&module);
    });
    return modules;
  };
}

}  // namespace

WrapPolicy wrap_blocks() {
  return wrap_classes([](const std::string& name) { return name.ends_with("Block"); });
}

WrapPolicy wrap_by_type(std::string class_name) {
  return [class_name](Module& root) {
    const auto modules =
        wrap_classes([&](const std::string& name) { return name == class_name; })(root);
    if (!modules.empty()) return modules;
    std::set<std::string> names;
    for_each_module(root, [&](Module& module) { names.insert(class_of(module)); });
    std::string list;
    for (const std::string& name : names)
      list += (list.empty() ? "" : ", ") + name;
    throw std::invalid_argument("wrap policy: no module of type " + class_name + "; there are " +
                                (list.empty() ? "none" : list));
  };
}

}  // namespace fsdp
