#pragma once

#include <agreement/same_on_all_ranks.h>
#include <comm/communicator.h>
#include <state_dict.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

// These functions read the parameters and buffers of a module into a StateDict, and check a
// StateDict before it is loaded. They are for both sharded and replicated models.
namespace fsdp {

// Returns the parameters and buffers under each of their names: a tied parameter has several.
std::map<std::string, at::Tensor> named_tensors(const Module& net);

// Returns a StateDict with the tensor that `copy` returns for each parameter and buffer of `net`,
// under each name of the parameter or buffer.
StateDict state_of(const Module& net,
                   const std::function<at::Tensor(const at::Tensor& tensor)>& copy);

// Returns a contiguous copy of `tensor` on the CPU, with memory of its own.
at::Tensor owned_copy(const at::Tensor& tensor);

// Collective. Throws on every rank: std::runtime_error if `state` does not fit `net`, because a
// name is missing or unexpected, a shape or the kind of number (floating-point or not) differs, or
// a tied parameter has two values; std::invalid_argument if `state` differs between ranks.
void check_can_be_loaded(const StateDict& state, const Module& net, Communicator& comm);

// For each buffer of `net`, adds to `invariants` that its values must be the same on every rank,
// with advice on how to make them the same.
void add_buffers(std::vector<RankInvariant>& invariants, const Module& net);

}  // namespace fsdp
