#pragma once

#include <nn/module.h>

#include <string>
#include <vector>

namespace fsdp {

using Events = std::vector<std::string>;

inline Module::BackwardHook note(Events& events, const std::string& event) {
  return [&events, event](Module&) { events.push_back(event); };
}

// Registers hooks with `module`: each backward pass appends "opens" to `events` before the
// gradients of the module are computed, and "closes" afterwards.
inline void note_backward(Module& module, Events& events) {
  module.register_full_backward_pre_hook(note(events, "opens"));
  module.register_full_backward_hook(note(events, "closes"));
}

}  // namespace fsdp
