#pragma once

#include <nn/module.h>

#include <functional>
#include <vector>

namespace fsdp {

// A WrapPolicy returns the modules below `root` that become FSDP units, each once. The root is
// always a unit. A unit must be an fsdp::Module, because FSDP registers hooks on it.
using WrapPolicy = std::function<std::vector<Module*>(Module& root)>;

// A policy that returns the given `modules` for any root. An empty list is allowed.
struct WrapByHand {
  std::vector<Module*> modules;
  std::vector<Module*> operator()(Module& /*root*/) const { return modules; }
};

WrapPolicy wrap_none();  // only the root becomes a unit
WrapPolicy wrap_by_hand(std::vector<Module*> modules);

}  // namespace fsdp
