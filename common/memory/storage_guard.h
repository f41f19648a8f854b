#pragma once

#include <base/torch.h>

#include <cstdint>
#include <string>

// Storage that explains itself while its memory is freed. Without a guard, an operator that uses a
// tensor on such storage reads a null pointer, or reports that the tensor is out of bounds.
namespace fsdp {

// From now on, whenever resize_storage() has freed the memory of `storage`, everything that asks
// for its data throws c10::Error with `message`: an operator's kernel, item(), a print, a save.
// Sizes and views work as before: the storage reports `bytes`, its size when it is not freed. At
// the time of the call, `storage` must have no memory. Live bytes stay exact: they are counted
// where memory is allocated.
void guard_storage(const c10::Storage& storage, const std::string& message, int64_t bytes);

// Replaces the message of `storage`, which must be guarded.
void set_guard_message(const c10::Storage& storage, const std::string& message);

bool is_guarded(const c10::Storage& storage);

// Called by resize_storage() before it changes the memory of guarded storage. Sets whether access
// throws.
void refuse_access(const c10::Storage& storage, bool refused);

// Returns whether the memory of `tensor`, which must have elements, is freed. The storage may be
// guarded or unguarded.
bool is_freed(const at::Tensor& tensor);

}  // namespace fsdp
