#pragma once

#include <nn/module.h>
#include <optim/shard_layout.h>

#include <cstddef>
#include <functional>
#include <optional>

namespace fsdp {

// The root's parameters are the parameters of the units that the layout marks as the root's. The
// root's readers are the modules in the root, or the root itself, that have registered one of the
// root's parameters and whose reads_parameters_in_backward() is true. when_root_is_unread() and
// units_before_root_readers() take a model, which is the root, and its layout.

// Registers hooks on the root and on the root's readers. In a backward pass, the hooks call
// `unread` as soon as the pass no longer reads the root's parameters: when the backward of all
// calls of the readers has ended. Returns whether hooks were registered. Hooks are registered if
// both conditions are true:
// - The model is a ReadsInCalls and has a reader.
// - Each module that has registered one of the root's parameters is a Module, so that its calls
//   have hooks, and is the root itself or a child of the root. (Hooks on modules farther inside
//   could change the order in which the gradients of one input are added, if several of these
//   modules use this input, as the three projections of attention do.)
//
// The hooks call `unread` at most once in a backward pass. They do not call `unread` in a pass
// - that does not reach a reader's call, because the input of the call requires no gradient or
//   because its output is not part of the loss;
// - that runs a call of a reader again, as activation checkpointing does, even if that call is
//   still to come;
// - that has another backward pass inside, which reaches a reader;
// - that follows a pass which an exception has stopped, if calls of the stopped pass are still
//   counted.
// In these cases, the caller knows only at the end of the pass that the root's parameters are no
// longer read. The modules own the hooks, and the hooks own `unread`.
bool when_root_is_unread(Module& root, const ShardLayout& layout, std::function<void()> unread);

// Returns how many of the units other than the root's come before the first reader of the root, in
// the order of registration; nothing if when_root_is_unread() would register no hooks. If modules
// run in the order of registration, the backward pass reads the root's parameters for the last time
// just before it reaches these units: it has then ended the backward of all later units.
std::optional<size_t> units_before_root_readers(Module& root, const ShardLayout& layout);

}  // namespace fsdp
