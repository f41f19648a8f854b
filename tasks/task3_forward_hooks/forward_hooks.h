#pragma once

#include <flat_parameter.h>
#include <nn/module.h>

#include <memory>

namespace fsdp {

// Makes `module` gather `unit` before its forward and free it afterwards:
// - forward pre-hook: unit->unshard(), one all-gather unless it is gathered already;
// - forward hook: unit->reshard(), if `reshard_after_forward`; otherwise the parameters stay for
//   backward, where the root needs them first. Without gradients there will be no backward, and
//   after an exception no later hook: then they are freed in any case.
void register_forward_hooks(Module& module, std::shared_ptr<FlatParameter> unit,
                            bool reshard_after_forward);

}  // namespace fsdp
