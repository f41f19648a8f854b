#pragma once

#include <comm/communicator.h>
#include <state/checkpoint_format.h>
#include <state/model_state.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

namespace fsdp {

// A checkpoint that is written while the training continues, as async_save() of
// torch.distributed.checkpoint does. done() and wait() are named as in torch.futures.Future.
// Here they are collective, because a checkpoint is complete only when the files of all ranks are
// complete.
class AsyncSave {
 public:
  // If the save is not complete, cancels it: waits until this rank's thread has ended and, on rank
  // 0, removes the files.
  virtual ~AsyncSave() = default;

  // Collective: an all-reduce of 24 bytes, and one more over replicas. Returns whether the
  // checkpoint is complete and on the disk under its name. Call it for example after each step: the
  // checkpoint gets its name only after a call of done() finds that the files of all ranks are on
  // the disk. If a rank could not write its files, all files are removed and done() throws
  // std::runtime_error on every rank, as save_checkpoint() does.
  virtual bool done() = 0;

  // Collective. Returns when the checkpoint is complete. Until then, calls `progress` about every
  // 100 ms on every rank, with the number of bytes that all ranks together still have to write.
  // Throws as done() does.
  virtual void wait(const std::function<void(int64_t bytes_left)>& progress = nullptr) = 0;
};

// Collective. Saves `state` as save_checkpoint() does: the files have the same bytes.
// - async_save() copies what this rank will write into memory before it returns; with
//   CheckpointFormat::full, rank 0 copies the whole state. So the caller may change the tensors as
//   soon as async_save() has returned.
// - Then a thread of each rank writes the copy, and frees the copy of each tensor as soon as it is
//   written. The thread runs no torch operator and makes no collective call. It has a lower
//   priority than its rank.
// - When the checkpoint has its name, a thread of rank 0 calls `then`, unless `then` is empty.
//   `then` must run no torch operator.
// Before the next save into `directory`, and before remove_old_checkpoints() and
// remove_unfinished_checkpoints(), call wait() of the AsyncSave that async_save() returned. `comm`
// must outlive this AsyncSave. Throws std::runtime_error on every rank if the save cannot begin.
std::unique_ptr<AsyncSave> async_save(const std::string& directory, CheckpointFormat format,
                                      int64_t step, const nlohmann::ordered_json& run,
                                      ModelState state, Communicator& comm,
                                      std::function<void()> then = nullptr);

}  // namespace fsdp
