#include <wrap_policy.h>

#include <algorithm>
#include <set>
#include <stdexcept>

namespace fsdp {
namespace {

std::string class_name(const Module& module) {
  const std::string& full = module.name();  // "fsdp::TransformerBlock"
  return full.substr(full.rfind(':') + 1);  // npos + 1 is 0
}

// Returns every fsdp::Module below `root` once, parents before children.
std::vector<Module*> hookable_modules(Module& root) {
  std::vector<Module*> result;
  for (const auto& module : root.modules(/*include_self=*/false)) {
    auto* hookable = dynamic_cast<Module*>(module.get());
    const bool seen = std::ranges::count(result, hookable) != 0;
    if (hookable != nullptr && !seen) result.push_back(hookable);
  }
  return result;
}

WrapPolicy wrap_if(std::function<bool(const Module&)> chosen) {
  return [chosen](Module& root) {
    std::vector<Module*> result = hookable_modules(root);
    std::erase_if(result, [&](Module* module) { return !chosen(*module); });
    return result;
  };
}

}  // namespace

WrapPolicy wrap_blocks() {
  return wrap_if([](const Module& module) { return class_name(module).ends_with("Block"); });
}

WrapPolicy wrap_by_type(std::string name) {
  return [name](Module& root) {
    auto chosen = wrap_if([&](const Module& module) { return class_name(module) == name; })(root);
    if (!chosen.empty()) return chosen;
    std::set<std::string> types;
    for (const Module* module : hookable_modules(root))
      types.insert(class_name(*module));
    std::string known;
    for (const std::string& type : types)
      known += (known.empty() ? "" : ", ") + type;
    throw std::invalid_argument("wrap policy: no module of type " + name + "; there are " +
                                (known.empty() ? "none that can be hooked" : known));
  };
}

}  // namespace fsdp
