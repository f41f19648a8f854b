#pragma once

#include <nn/module.h>

namespace fsdp {

// Records when the forward and the backward of `root`, and of each module in a ModuleList under it,
// begin and end, under the names that units have: "root", "layers.0". To be called before any other
// hook is registered, so that what hooks wait for before a module runs lies within its span. The
// root's backward ends when the whole pass does. Does nothing while no Recorder is there.
void record_module_spans(Module& root);

}  // namespace fsdp
