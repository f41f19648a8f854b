#pragma once

#include <comm/communicator.h>
#include <optim/read_item.h>
#include <state/checkpoint_format.h>
#include <state/model_state.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

// The state of a training as files. A folder D of checkpoints has one folder for each of them:
//   D/step-000003/checkpoint.json                    version, step, run, parameters, files
//   D/step-000003/rank-0000-of-0004.safetensors      sharded: the ranges that rank 0 owns
//   D/step-000003/model.safetensors                  full: the parameters, each whole
//   D/step-000003/optimizer.safetensors              full: moments and step counts
//   D/step-000003/SHA256SUMS                         of the other files, for sha256sum -c
// A name in the files is NAME, NAME/exp_avg, NAME/exp_avg_sq or NAME/step, and in sharded ones
// ":BEGIN-END" follows. docs/checkpoints.md has the details. A checkpoint does not depend on ranks
// or modes: each rank that loads it takes its own ranges out of the ranges in the files.
namespace fsdp {

inline constexpr int kCheckpointVersion = 1;

// The description of a checkpoint.
struct Checkpoint {
  std::string folder;
  int64_t step{};              // steps of the training before it
  nlohmann::ordered_json run;  // the `run` that was passed to save_checkpoint()

  // Return a member of `run`; if it is missing, "" or nothing. The path of a number is like
  // "/loss_scaler/scale". Throw std::runtime_error, which names the file, if the member is of
  // another type, or if the number is below 0.
  std::string text_in_run(const std::string& name) const;
  std::optional<int64_t> number_in_run(const std::string& path) const;
};

// Collective. Saves `state` as the folder `directory`/step-N.
// - While it is written, the folder is called step-N.part. It gets its name when it is complete and
//   on the disk.
// - `run` may be nested less than 100 deep, and none of its objects may have more than 1000
//   members.
// Throws std::runtime_error on every rank if a rank fails; the other checkpoints stay as they are.
void save_checkpoint(const std::string& directory, CheckpointFormat format, int64_t step,
                     const nlohmann::ordered_json& run, ModelState state, Communicator& comm);

// Reads the description of a checkpoint: of the folder `path`, or of the latest checkpoint in it.
// Throws std::runtime_error, which names the file, if it is damaged, not a checkpoint, or of
// another version.
Checkpoint find_checkpoint(const std::string& path);

// Collective. Fills this rank's ranges of `state` from the checkpoint, which any number of ranks in
// any mode may have saved.
// - `locate` returns what to read of saved ranges if only a part of them is needed. It may be empty
//   if no saved range is cut.
// Throws std::runtime_error on every rank, before it changes a value, if anything is wrong on a
// rank: names or sizes of the parameters, the hash of a file, or a missing tensor. The text names
// the file and the tensor.
void load_checkpoint(const std::string& folder, const ModelState& state, const Locate& locate,
                     Communicator& comm);

// Returns the step of the latest checkpoint in `directory`, or nothing if there is none.
std::optional<int64_t> latest_step(const std::string& directory);

// Removes what interrupted saves have left in `directory`.
void remove_unfinished_checkpoints(const std::string& directory);

// Removes all checkpoints in `directory` but the latest `keep`, and what interrupted saves have
// left.
void remove_old_checkpoints(const std::string& directory, int64_t keep);

}  // namespace fsdp
