#pragma once

#include <base/torch.h>

#include <cstdint>
#include <string>

// Guarded storage: while its memory is freed, each access to its data throws an error that says
// why. Without a guard, an operator that uses a tensor on such storage reads a null pointer, or
// reports that the tensor is out of bounds.
namespace fsdp {

// From now on, whenever resize_storage() has freed the memory of `storage`, everything that asks
// for its data throws c10::Error with `message`: an operator's kernel, item(), a print, a save.
// Sizes and views work as before: the storage reports `bytes`, its size when it is not freed. At
// the time of the call, `storage` must have no memory. Live bytes stay exact: they are counted
// where memory is allocated.
void guard_storage(const c10::Storage& storage, const std::string& message, int64_t bytes);

// Replaces the message of the exception that access to the freed `storage` throws. The storage must
// be guarded.
void set_guard_message(const c10::Storage& storage, const std::string& message);

bool is_guarded(const c10::Storage& storage);

// Sets whether access to the data of the guarded `storage` throws. Called by resize_storage()
// before it changes the memory of the storage.
void refuse_access(const c10::Storage& storage, bool refused);

// Returns whether the memory of `tensor`, which must have elements, is freed. The storage may be
// guarded or unguarded.
bool is_freed(const at::Tensor& tensor);

}  // namespace fsdp
