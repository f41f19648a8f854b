#pragma once

#include <nn/module.h>

#include <functional>
#include <vector>

namespace fsdp {

// Selects the modules below `root` that become units, each once. The root is always a unit. A unit
// must be an fsdp::Module, because FSDP registers hooks on it.
using WrapPolicy = std::function<std::vector<Module*>(Module& root)>;

// A policy that selects these modules under any root. An empty list is allowed.
struct WrapByHand {
  std::vector<Module*> modules;
  std::vector<Module*> operator()(Module& /*root*/) const { return modules; }
};

WrapPolicy wrap_none();  // only the root: a WrapByHand of no modules
WrapPolicy wrap_by_hand(std::vector<Module*> modules);

}  // namespace fsdp
