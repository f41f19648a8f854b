#pragma once

#include <agreement/same_on_all_ranks.h>
#include <comm/communicator.h>
#include <state_dict.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

// The parameters and buffers of a module as a StateDict, whatever sharded or replicated it.
namespace fsdp {

// By every name of a parameter or buffer: a tied parameter has several.
std::map<std::string, at::Tensor> named_tensors(const Module& net);

// The state under every name, with each tensor as `copy` returns it.
StateDict state_of(const Module& net,
                   const std::function<at::Tensor(const at::Tensor& tensor)>& copy);

// An owned, contiguous copy on the CPU.
at::Tensor owned_copy(const at::Tensor& tensor);

// Collective. Throws on every rank unless all ranks give the same `state`, and it fits `net`: names
// that are missing or unexpected, shapes, kinds of numbers, two values for a tied parameter.
void check_can_be_loaded(const StateDict& state, const Module& net, Communicator& comm);

// Adds traits for the values of the buffers, with the advice how to make them the same.
void add_buffers(std::vector<RankInvariant>& traits, const Module& net);

}  // namespace fsdp
