#pragma once

#include <nn/module.h>

namespace fsdp {

// Records when the forward and the backward of `root`, and of each module in a ModuleList under it,
// begin and end, under the names that units have: "root", "layers.0". The root's backward ends when
// the whole backward pass ends. Call record_module_spans() before any other hook is registered, so
// that the waits of hooks before a module runs are within the module's span. Does nothing if there
// is no Recorder.
void record_module_spans(Module& root);

}  // namespace fsdp
