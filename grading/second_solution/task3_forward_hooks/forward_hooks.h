#pragma once

#include <flat_parameter.h>
#include <nn/module.h>

#include <memory>

namespace fsdp {

// Registers two hooks on `module`:
// - The forward pre-hook calls unit->unshard(): one all-gather, unless the unit is unsharded.
// - The forward hook calls unit->reshard() if `reshard_after_forward` is on. If it is off, as for
//   the root, which backward needs first, the unit stays unsharded for backward. But if gradients
//   are not recorded or forward threw, no backward follows, and the unit is resharded in any case.
void register_forward_hooks(Module& module, std::shared_ptr<FlatParameter> unit,
                            bool reshard_after_forward);

}  // namespace fsdp
