#include <strategies/fsdp/wrap_option.h>
#include <unit_plan.h>
#include <wrap_by_size.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <set>
#include <stdexcept>
#include <string_view>

namespace fsdp {
namespace {

// Returns, for each unit that plan_units() makes if `modules` are the units, the bytes of the
// unit's parameters.
std::map<const Module*, int64_t> unit_bytes(Module& root, const std::vector<Module*>& modules) {
  std::map<const Module*, int64_t> bytes;
  for (const UnitPlan& unit : plan_units(root, wrap_by_hand(modules))) {
    for (const NamedParameter& parameter : unit.parameters)
      bytes[unit.module] += static_cast<int64_t>(parameter.tensor.nbytes());
  }
  return bytes;
}

// The modules that have been chosen as units, and all modules inside the chosen modules.
class Taken {
 public:
  void add(const torch::nn::Module& module) {
    for (const auto& inside : module.modules())
      taken_.insert(inside.get());
  }
  // Returns whether `module` is a chosen module, or lies inside or around one.
  bool touches(const torch::nn::Module& module) const {
    return std::ranges::any_of(module.modules(),
                               [&](const auto& other) { return taken_.contains(other.get()); });
  }

 private:
  std::set<const torch::nn::Module*> taken_;
};

int64_t parse_bytes(const std::string& text, std::string_view digits) {
  // `bytes` stays 0 if the digits do not begin with a number, or if this number does not fit an
  // int64.
  int64_t bytes{};
  const char* end = std::from_chars(digits.begin(), digits.end(), bytes).ptr;
  if (end != digits.end() || bytes <= 0) {
    throw std::invalid_argument("--wrap " + text + ": size: takes a positive number of bytes");
  }
  return bytes;
}

}  // namespace

WrapPolicy wrap_auto() {
  return [](Module& root) {
    std::vector<Module*> chosen = wrap_blocks()(root);
    const auto blocks = unit_bytes(root, chosen);
    int64_t largest = 0;
    Taken taken;
    for (const Module* block : chosen) {
      taken.add(*block);
      if (blocks.contains(block)) largest = std::max(largest, blocks.at(block));
    }
    if (largest == 0) return chosen;

    // Looks at the modules from the leaves up. Adds one module after another to the chosen ones and
    // plans the units, because tied parameters decide which parameters the module's unit would
    // have. Keeps the module if its unit is large enough.
    const auto modules = root.modules(/*include_self=*/false);
    for (auto module = modules.rbegin(); module != modules.rend(); ++module) {
      auto* hookable = dynamic_cast<Module*>(module->get());
      if (hookable == nullptr || taken.touches(*hookable)) continue;
      chosen.push_back(hookable);
      if (unit_bytes(root, chosen)[hookable] >= largest) {
        taken.add(*hookable);
      } else {
        chosen.pop_back();
      }
    }
    return chosen;
  };
}

WrapPolicy wrap_policy_of(const std::string& text) {
  if (text == "auto") return wrap_auto();
  if (text == "block") return wrap_blocks();
  if (text == "none") return wrap_none();
  if (text.starts_with("type:") && text.size() > 5) return wrap_by_type(text.substr(5));
  if (text.starts_with("size:")) return wrap_by_size(parse_bytes(text, text.substr(5)));
  throw std::invalid_argument("--wrap " + text +
                              ": takes auto, block, none, type:NAME or size:BYTES");
}

}  // namespace fsdp
