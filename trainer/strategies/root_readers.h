#pragma once

#include <nn/module.h>
#include <optim/shard_layout.h>

#include <cstddef>
#include <functional>
#include <optional>

namespace fsdp {

// The root's readers are the modules in it that have registered one of the root's parameters and
// whose reads_parameters_in_backward() is true. These two functions take a model and its layout;
// the root's parameters are those of the units that the layout marks as the root's.

// Registers hooks on the root and on its readers that call `unread` in a backward pass as soon as
// nothing in it reads the root's parameters any more: when all calls of the readers have come back.
// Registers none, and returns false, unless the model is a ReadsInCalls, has a reader, and each
// module that has registered one of the root's parameters is a Module, whose calls have hooks, and
// the root itself or a child of it. (Hooks on modules farther inside could change the order in
// which the gradients of one input are added, if several of them use it, as three projections do.)
//
// It calls `unread` at most once in a pass, and not in a pass
// - to which a reader's call does not come back, because the input of the call needs no gradient or
//   because its output is not part of the loss
// - that runs a call of a reader again, as a checkpoint does: also if that call is still to come
// - that has another pass inside, in which a reader comes back
// - after one that an exception broke off, if the calls of that one have not come back.
// Then only the end of the pass tells. The modules own the hooks, and these own `unread`.
bool when_root_is_unread(Module& root, const ShardLayout& layout, std::function<void()> unread);

// How many of the units that are not the root's come before the first reader, and that is when in
// backward the root is unread, if modules run in the order of their registration: when the other
// units have come back. None if when_root_is_unread() registers no hooks.
std::optional<size_t> units_before_root_readers(Module& root, const ShardLayout& layout);

}  // namespace fsdp
