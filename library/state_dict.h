#pragma once

#include <base/torch.h>
#include <comm/communicator.h>

#include <string>

namespace fsdp {

// A map from names to tensors, iterated in the order in which the tensors were inserted.
using StateDict = c10::Dict<std::string, at::Tensor>;

// Collective. Writes the `state` of global rank 0 with torch::pickle_save(). Python's
// torch.load(path, weights_only=False) reads the file as a dict. The `state` of other ranks is
// ignored. The file appears at once, complete. Throws std::runtime_error, which names the file, on
// every rank if it cannot be written.
void save_state_dict(const StateDict& state, const std::string& path, Communicator& comm);

// Reads a file of save_state_dict(), or of Python's torch.save(dict(net.state_dict()), path).
// (Without dict() the file would hold a class of Python's.) Throws std::runtime_error, which names
// the file, if it cannot be read, is not such a file, holds a class of Python's or anything else
// but tensors by name, or is damaged.
StateDict load_state_dict_file(const std::string& path);

}  // namespace fsdp
