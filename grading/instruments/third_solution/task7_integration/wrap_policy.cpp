#include <wrap_policy.h>

#include <algorithm>
#include <set>
#include <stdexcept>

namespace fsdp {
namespace {

// Of the class of `module`, without namespaces: "ToyBlock".
std::string class_name(const torch::nn::Module& module) {
  const std::string& name = module.name();
  const size_t end = name.rfind("::", name.find('<'));
  return end == name.npos ? name : name.substr(end + 2);
}

void add_below(const torch::nn::Module& module, std::vector<torch::nn::Module*>& below) {
  for (const auto& child : module.children()) {
    if (std::ranges::find(below, child.get()) != below.end()) continue;  // its second name
    below.push_back(child.get());
    add_below(*child, below);
  }
}

// The modules below `root`, each once.
std::vector<torch::nn::Module*> modules_below(const torch::nn::Module& root) {
  std::vector<torch::nn::Module*> below;
  add_below(root, below);
  return below;
}

struct Candidate {
  Module* module;
  std::string class_name;
};

// What a policy may choose: the modules below `root` that can be hooked.
std::vector<Candidate> candidates(const torch::nn::Module& root) {
  std::vector<Candidate> found;
  for (torch::nn::Module* below : modules_below(root)) {
    auto* module = dynamic_cast<Module*>(below);
    if (module) found.push_back({module, class_name(*module)});
  }
  return found;
}

std::vector<Module*> of_class(const std::vector<Candidate>& candidates, const std::string& name) {
  std::vector<Module*> chosen;
  for (const Candidate& candidate : candidates)
    if (candidate.class_name == name) chosen.push_back(candidate.module);
  return chosen;
}

std::string listed_below(const torch::nn::Module& root) {
  std::set<std::string> names;
  for (const Candidate& candidate : candidates(root))
    names.insert(candidate.class_name);
  std::string list;
  for (const std::string& name : names)
    list += (list.empty() ? "" : ", ") + name;
  return list;
}

}  // namespace

WrapPolicy wrap_blocks() {
  return [](Module& root) {
    std::vector<Module*> chosen;
    for (const Candidate& candidate : candidates(root))
      if (candidate.class_name.ends_with("Block")) chosen.push_back(candidate.module);
    return chosen;
  };
}

WrapPolicy wrap_by_type(std::string name) {
  return [name = std::move(name)](Module& root) {
    const std::vector<Module*> chosen = of_class(candidates(root), name);
    if (chosen.empty()) {
      throw std::invalid_argument("wrap policy: no module of type " + name + "; there are " +
                                  listed_below(root));
    }
    return chosen;
  };
}

}  // namespace fsdp
