#pragma once

#include <comm/communicator.h>
#include <state/checkpoint_format.h>
#include <state/safetensors.h>
#include <state/whole_state.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

// When a checkpoint is saved, pass_tensors() of this file passes the tensors that this rank must
// write to the object that writes them (TensorSink).
namespace fsdp {

// Receives the tensors of one safetensors file, in the order of TensorFile::entries.
class TensorSink {
 public:
  virtual ~TensorSink() = default;
  // `elements`: contiguous and on the CPU; the whole next tensor of the file, or the next part of
  // it.
  virtual void write(const at::Tensor& elements) = 0;
  virtual void close() = 0;  // pass_tensors() calls it after the last tensor of the file
};

// The name and the header of a safetensors file.
struct TensorFile {
  std::string name;
  std::vector<SafetensorsEntry> entries;
  SafetensorsMetadata metadata;
};
using OpenSink = std::function<std::unique_ptr<TensorSink>(const TensorFile& file)>;

// Collective. For each file that this rank writes, calls `open` and passes the tensors of the file
// to the sink that `open` returns. The order of the files, of their entries and of the elements
// depends only on the state and on the ranks.
// - sharded: the rank writes one file, with the ranges that it owns. It writes no file if it owns
//   no range, or if it is not in the first replica.
// - full: rank 0 writes a file of parameters and, if there is optimizer state, a file of optimizer
//   state. It receives one range of another rank at a time.
// If `open` or a sink throws a std::exception, makes the remaining collective calls, for which
// other ranks wait, and returns the exception; otherwise returns null.
std::exception_ptr pass_tensors(CheckpointFormat format, const WholeState& state,
                                const Communicator& comm, const OpenSink& open);

}  // namespace fsdp
