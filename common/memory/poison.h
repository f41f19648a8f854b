#pragma once

#include <cstddef>

// Writes NaN into memory that no code may read: memory that was allocated and not yet written,
// freed memory, and the padding of flat parameters. A program that reads it computes NaN, and not a
// number that happens to be right. For debugging; off by default.
namespace fsdp::poison {

void enable(bool on = true);  // for the rest of the process
bool enabled();

// For allocators. If enabled, sets every bit, which is NaN in every floating-point dtype.
void spoil(void* data, size_t bytes);

// Sets the function that spoil() calls before it writes, in place of the one before.
using SpoilCallback = void (*)(const void* data, size_t bytes);
void on_spoil(SpoilCallback callback);

// Returns the value for padding, on which no result may depend: NaN if enabled, else 0.
float padding();

}  // namespace fsdp::poison
