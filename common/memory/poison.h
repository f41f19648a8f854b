#pragma once

#include <cstddef>

// Fills memory that nobody may read with NaN: what was allocated and not yet written, what was
// freed, and the padding of flat parameters. A program that reads it computes NaN, and not a number
// that happens to be right. For debugging; off by default.
namespace fsdp::poison {

void enable(bool on = true);  // for the rest of the process
bool enabled();

// For allocators. If enabled, sets every bit, which is NaN in every floating-point dtype.
void spoil(void* data, size_t bytes);

// The value for padding that no result may depend on: NaN if enabled, else 0.
float padding();

}  // namespace fsdp::poison
