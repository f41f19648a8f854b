#pragma once

#include <nn/module.h>

#include <string>
#include <vector>

namespace fsdp {

using Events = std::vector<std::string>;

inline Module::BackwardHook note(Events& events, const std::string& event) {
  return [&events, event](Module&) { events.push_back(event); };
}

// Makes each backward pass of `module` append "opens" before and "closes" after the module's
// gradients.
inline void note_backward(Module& module, Events& events) {
  module.register_full_backward_pre_hook(note(events, "opens"));
  module.register_full_backward_hook(note(events, "closes"));
}

}  // namespace fsdp
