#pragma once

#include <nn/module.h>

#include <functional>
#include <vector>

namespace fsdp {

// Chooses the modules below `root` that become units, each once; the root always is one. A unit
// must be an fsdp::Module, for it has to be hooked.
using WrapPolicy = std::function<std::vector<Module*>(Module& root)>;

// The policy that chooses these modules, whatever the root. To choose none is no mistake here.
struct WrapByHand {
  std::vector<Module*> modules;
  std::vector<Module*> operator()(Module& /*root*/) const { return modules; }
};

WrapPolicy wrap_none();  // the root alone: a WrapByHand of no modules
WrapPolicy wrap_by_hand(std::vector<Module*> modules);

}  // namespace fsdp
