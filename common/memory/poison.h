#pragma once

#include <cstddef>

// Writes NaN into memory that no code may read: memory that was allocated and not yet written,
// freed memory, and the padding of flat parameters. A program that reads such memory computes NaN,
// and not a number that happens to be right. For debugging; off by default.
namespace fsdp::poison {

void enable(bool on = true);  // switches poisoning on or off
bool enabled();

// Allocators call spoil() for memory that was just allocated or is about to be freed. If poisoning
// is on, it sets every bit of this memory, which is NaN in every floating-point dtype.
void spoil(void* data, size_t bytes);

// on_spoil() sets the function that spoil() calls before it writes, in place of the previous
// function. spoil() calls it even if poisoning is off.
using SpoilCallback = void (*)(const void* data, size_t bytes);
void on_spoil(SpoilCallback callback);

// Returns the value with which the padding of flat parameters is filled: NaN if poisoning is on,
// else 0. No result may depend on this value.
float padding();

}  // namespace fsdp::poison
