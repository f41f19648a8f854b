#pragma once

#include <cstddef>

// Memory whose contents nobody may use holds NaN, so that a program which uses it computes NaN
// instead of a number that is right by luck: what has been allocated and not written, what has been
// freed, and the padding of flat parameters. For debugging; off at first.
namespace fsdp::poison {

void enable(bool on = true);  // for the rest of the process
bool enabled();

// For allocators: sets every bit, which is NaN in every floating-point dtype. Nothing unless
// enabled.
void spoil(void* data, size_t bytes);

// What to fill padding with that no result may depend on: NaN if enabled, else 0.
float padding();

}  // namespace fsdp::poison
