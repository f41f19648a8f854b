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

WrapPolicy wrap_none() {
  return wrap_by_hand({});
}

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

WrapPolicy wrap_by_hand(std::vector<Module*> modules) {
  return [modules](Module&) { return modules; };
}

WrapPolicy wrap_by_size(int64_t bytes) {
  return [bytes](Module& root) {
    SizeWalk walk{bytes, &root, {}};
    walk.visit(root);
    return walk.chosen;
  };
}

}  // namespace fsdp
