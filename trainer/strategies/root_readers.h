#pragma once

#include <nn/module.h>
#include <optim/shard_layout.h>

#include <cstddef>
#include <functional>
#include <optional>

namespace fsdp {

// The root's readers are the modules in the root, or the root itself, that have registered one of
// the root's parameters and whose reads_parameters_in_backward() is true. These two functions take
// a model and its layout; the root's parameters are those of the units that the layout marks as the
// root's.

// Registers hooks on the root and on its readers that call `unread` in a backward pass as soon as
// the pass no longer reads the root's parameters: when the backward of all calls of the readers has
// ended. Returns whether it has registered them. It registers hooks if both are true:
// - the model is a ReadsInCalls and has a reader;
// - each module that has registered one of the root's parameters is a Module, so that its calls
//   have hooks, and is the root itself or a child of the root. (Hooks on modules farther inside
//   could change the order in which the gradients of one input are added, if several of the modules
//   use the input, as three projections do.)
//
// The hooks call `unread` at most once in a backward pass, and never in a pass
// - that does not reach a reader's call, because the input of the call requires no gradient or
//   because its output is not part of the loss;
// - that runs a call of a reader again, as a checkpoint does, even if that call is still to come;
// - that has another backward pass inside, which reaches a reader;
// - after a pass that an exception broke off, if calls of that pass are still counted.
// In these cases only the end of the pass shows that the root is unread. The modules own the hooks,
// and the hooks own `unread`.
bool when_root_is_unread(Module& root, const ShardLayout& layout, std::function<void()> unread);

// Returns how many of the units other than the root's come before the first reader; nothing if
// when_root_is_unread() registers no hooks. If modules run in the order of their registration,
// backward stops reading the root's parameters just before it reaches these units: when the
// backward of all units after them has ended.
std::optional<size_t> units_before_root_readers(Module& root, const ShardLayout& layout);

}  // namespace fsdp
