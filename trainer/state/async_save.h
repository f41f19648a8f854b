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
// torch.distributed.checkpoint writes one. done() and wait() have the names of its future. They are
// collective, because a checkpoint is complete only when the files of all ranks are.
class AsyncSave {
 public:
  // Gives up a save that is not complete: waits until this rank's thread has ended, and removes the
  // files if this is rank 0.
  virtual ~AsyncSave() = default;

  // Collective: an all-reduce of 24 bytes. Returns whether the checkpoint is complete and on the
  // disk, under its name. Call it for example after each step: the checkpoint gets its name only
  // after a call that finds the files of all ranks on the disk. Throws std::runtime_error on every
  // rank, as save_checkpoint() does, if a rank could not write; then the files are removed.
  virtual bool done() = 0;

  // Collective. Returns when the checkpoint is complete. Calls `progress` about every 100 ms, on
  // every rank, with the number of bytes that all ranks still have to write. Throws as done() does.
  virtual void wait(const std::function<void(int64_t bytes_left)>& progress = nullptr) = 0;
};

// Collective. Saves `state` as save_checkpoint() does: the files have the same bytes.
// - Before it returns, copies what this rank will write into memory; with CheckpointFormat::full,
//   rank 0 copies the whole state. So the caller may change the tensors at once.
// - Then a thread of each rank writes the copy, and frees each tensor's copy when it is written.
//   The thread runs no torch operator and makes no collective call.
// - When the checkpoint has its name, a thread of rank 0 calls `then`, unless it is empty. `then`
//   must run no torch operator.
// Call wait() of the result before the next save into `directory`, and before
// remove_old_checkpoints() and remove_unfinished_checkpoints(). `comm` must outlive the result.
// Throws std::runtime_error on every rank if the save cannot begin.
std::unique_ptr<AsyncSave> async_save(const std::string& directory, CheckpointFormat format,
                                      int64_t step, const nlohmann::ordered_json& run,
                                      ModelState state, Communicator& comm,
                                      std::function<void()> then = nullptr);

}  // namespace fsdp
