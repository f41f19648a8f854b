#include <wrap_policy.h>

#include <algorithm>
#include <iterator>
#include <map>
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

WrapPolicy wrap_none() {
  return [](Module&) { return std::vector<Module*>(); };
}

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

WrapPolicy wrap_by_hand(std::vector<Module*> modules) {
  return [modules](Module&) { return modules; };
}

WrapPolicy wrap_by_size(int64_t bytes) {
  return [bytes](Module& root) { return BySize(root, bytes).chosen(); };
}

}  // namespace fsdp
