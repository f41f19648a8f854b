#pragma once

#include <flat_parameter.h>
#include <nn/module.h>

#include <memory>

namespace fsdp {

// Registers two hooks on `module`. Issues no collective.
// - The hooks own the unit, so the unit lives at least as long as the module.
// - They leave the module's input and output as they are.
// - The forward pre-hook calls unit->unshard() on every call of the module: this issues one
//   all-gather, unless the unit is unsharded or its all-gather has been issued already. So when the
//   module runs, its parameters have their values.
// - The forward hook calls unit->reshard() if `reshard_after_forward` is on. If it is off, the unit
//   stays unsharded for backward. (It is off for the root, which backward needs first.)
// - If the thread records no gradients (at::GradMode) or forward threw, no backward pass follows,
//   and the forward hook reshards the unit in any case.
void register_forward_hooks(Module& module, std::shared_ptr<FlatParameter> unit,
                            bool reshard_after_forward);

}  // namespace fsdp
