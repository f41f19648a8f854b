#pragma once

#include <base/torch.h>
#include <comm/communicator.h>

#include <string>

namespace fsdp {

// Tensors by name, in the order in which they were put in.
using StateDict = c10::Dict<std::string, at::Tensor>;

// Writes what rank 0 gives as a file of torch::pickle_save(), which Python's
// torch.load(path, weights_only=False) reads as a dict. All ranks call it together; the other
// ranks' `state` is not looked at. The file appears at once, complete. Throws std::runtime_error
// naming the file, on every rank.
void save_state_dict(const StateDict& state, const std::string& path, Communicator& comm);

// Reads such a file, or one of Python's torch.save(dict(net.state_dict()), path): without dict() it
// would hold a class of Python's. Throws std::runtime_error naming the file: whether it cannot be
// read, is of another kind, holds that class or something else, or is damaged.
StateDict load_state_dict_file(const std::string& path);

}  // namespace fsdp
