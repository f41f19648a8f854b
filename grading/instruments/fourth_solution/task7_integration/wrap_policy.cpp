#include <wrap_policy.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

// The modules below `root` that can be hooked, each once, a parent before its children.
std::vector<Module*> modules_below(Module& root) {
  std::set<const torch::nn::Module*> seen{&root};
  std::vector<Module*> modules;
  for (const auto& module : root.modules(/*include_self=*/false)) {
    auto* hookable = dynamic_cast<Module*>(module.get());
    if (hookable && seen.insert(hookable).second) modules.push_back(hookable);
  }
  return modules;
}

std::string class_of(const Module& module) {
  const std::string& name = module.name();
  const size_t separator = name.rfind("::");
  return separator == std::string::npos ? name : name.substr(separator + 2);
}

std::vector<Module*> of_class(Module& root, const std::function<bool(const std::string&)>& fits) {
  std::vector<Module*> modules = modules_below(root);
  std::erase_if(modules, [&](const Module* module) { return !fits(class_of(*module)); });
  return modules;
}

std::string classes_below(Module& root) {
  std::set<std::string> names;
  std::ranges::transform(modules_below(root), std::inserter(names, names.end()),
                         [](const Module* module) { return class_of(*module); });
  std::string list;
  for (const std::string& name : names)
    list += (list.empty() ? "" : ", ") + name;
  return list;
}

}  // namespace

WrapPolicy wrap_blocks() {
  return [](Module& root) {
    return of_class(root, [](const std::string& name) { return name.ends_with("Block"); });
  };
}

WrapPolicy wrap_by_type(std::string name) {
  return [name = std::move(name)](Module& root) {
    std::vector<Module*> modules =
        of_class(root, [&](const std::string& other) { return other == name; });
    if (modules.empty()) {
      throw std::invalid_argument("wrap policy: no module of type " + name + "; there are " +
                                  classes_below(root));
    }
    return modules;
  };
}

}  // namespace fsdp
