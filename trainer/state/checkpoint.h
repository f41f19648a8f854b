#pragma once

#include <comm/communicator.h>
#include <optim/read_item.h>
#include <state/checkpoint_format.h>
#include <state/model_state.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

// The state of a training as files. A folder D of checkpoints has one folder for each:
//   D/step-000003/checkpoint.json                  what it is: version, step, run, parameters,
//   files D/step-000003/rank-0000-of-0004.safetensors    sharded: the ranges that rank 0 owns
//   D/step-000003/model.safetensors                full: the parameters, each whole
//   D/step-000003/optimizer.safetensors            full: moments and step counts
//   D/step-000003/SHA256SUMS                       of the other files, as sha256sum -c reads it
// A name in the files is NAME, NAME/exp_avg, NAME/exp_avg_sq or NAME/step, and in sharded ones
// ":BEGIN-END" follows. docs/checkpoints.md has the details. A checkpoint knows neither ranks nor
// modes: whoever loads it takes its own ranges out of those in the files.
namespace fsdp {

inline constexpr int kCheckpointVersion = 1;

// The description of a checkpoint.
struct Checkpoint {
  std::string folder;
  int64_t step{};              // steps of the training before it
  nlohmann::ordered_json run;  // what save_checkpoint() was given

  // A member of `run`, as train saves it: "" or nothing if it is missing. The path of a number is
  // as "/loss_scaler/scale". Throws std::runtime_error naming the file if it is of another kind, or
  // if the number is below 0.
  std::string text_in_run(const std::string& name) const;
  std::optional<int64_t> number_in_run(const std::string& path) const;
};

// Saves `state` as the folder `directory`/step-N. It appears with this name at once, complete and
// on the disk; before, it is called step-N.part. All ranks call it together. If a rank fails,
// throws std::runtime_error on every rank; the other checkpoints stay as they are. `run` is nested
// less than 100 deep, and none of its objects has more than 1000 members.
void save_checkpoint(const std::string& directory, CheckpointFormat format, int64_t step,
                     const nlohmann::ordered_json& run, ModelState state, Communicator& comm);

// Reads the description of a checkpoint: of the folder `path`, or of the latest checkpoint in
// it. Throws std::runtime_error naming the file if it is damaged, no checkpoint, or of a newer
// version.
Checkpoint find_checkpoint(const std::string& path);

// Fills this rank's ranges of `state` from the checkpoint, as saved by any number of ranks and in
// any mode. All ranks call it together. If anything is wrong on any rank, throws std::runtime_error
// on every rank before it changes a value: names and sizes of the parameters, the hash of every
// file, the tensors that are there. The text names the file and the tensor. `locate` says what to
// read where only a part of a saved range is wanted; where no saved range is cut it may be empty.
void load_checkpoint(const std::string& folder, const ModelState& state, const Locate& locate,
                     Communicator& comm);

// The step of the latest checkpoint in `directory`, if there is one.
std::optional<int64_t> latest_step(const std::string& directory);

// Removes what saves have left in `directory` that were broken off.
void remove_unfinished_checkpoints(const std::string& directory);

// Removes all checkpoints in `directory` but the latest `keep`, and what broken runs have left.
void remove_old_checkpoints(const std::string& directory, int64_t keep);

}  // namespace fsdp
