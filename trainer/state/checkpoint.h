#pragma once

#include <comm/communicator.h>
#include <optim/read_item.h>
#include <state/checkpoint_format.h>
#include <state/model_state.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

// The state of a training as files. A folder D of checkpoints has one folder for each checkpoint:
//   D/step-000003/checkpoint.json                    version, step, run, parameters, files
//   D/step-000003/rank-0000-of-0004.safetensors      sharded: the ranges that rank 0 owns
//   D/step-000003/model.safetensors                  full: the parameters, each whole
//   D/step-000003/optimizer.safetensors              full: moments and step counts
//   D/step-000003/SHA256SUMS                         hashes of the other files, for sha256sum -c
// The tensors of the parameter NAME are called NAME (its values), NAME/exp_avg, NAME/exp_avg_sq and
// NAME/step in the safetensors files. In a sharded checkpoint, ":BEGIN-END" follows, the range of
// the elements. docs/checkpoints.md has the details. Any number of ranks in any mode can load a
// checkpoint: each rank reads its own ranges from the ranges in the files.
namespace fsdp {

inline constexpr int kCheckpointVersion = 1;

// What find_checkpoint() reads about a checkpoint.
struct Checkpoint {
  std::string folder;
  int64_t step{};              // number of steps that were trained before the checkpoint was saved
  nlohmann::ordered_json run;  // the `run` that was passed to save_checkpoint()

  // text_in_run() returns a text in `run`, or "" if it is missing; number_in_run() returns a number
  // in `run`, or nothing if it is missing. The path of a number is like "/loss_scaler/scale". Both
  // throw std::runtime_error, which names the file, if the value is of another type;
  // number_in_run() also throws if the number is below 0.
  std::string text_in_run(const std::string& name) const;
  std::optional<int64_t> number_in_run(const std::string& path) const;
};

// Collective. Saves `state` as the folder `directory`/step-N, with N = `step`.
// - While the files are written, the folder is called step-N.part. It gets the name step-N when the
//   checkpoint is complete and on the disk.
// - `run` may be nested less than 100 deep, and none of its objects may have more than 1000
//   members.
// If the save fails on a rank, throws std::runtime_error on every rank; the other checkpoints in
// `directory` stay as they are.
void save_checkpoint(const std::string& directory, CheckpointFormat format, int64_t step,
                     const nlohmann::ordered_json& run, ModelState state, Communicator& comm);

// Reads the file checkpoint.json of a checkpoint. `path`: the folder of the checkpoint, or a folder
// of checkpoints, of which the latest is read. Throws std::runtime_error, which names the file, if
// the checkpoint is missing, damaged or of another version.
Checkpoint find_checkpoint(const std::string& path);

// Collective. Fills this rank's ranges of `state` from the checkpoint, which any number of ranks in
// any mode may have saved.
// - `locate` is called if a range of this rank needs only a part of a saved range, and returns what
//   to read. It may be empty if this rank needs only whole saved ranges.
// If something is wrong on a rank (a name or a size of a parameter, the hash of a file, or a
// missing tensor), throws std::runtime_error on every rank, before it changes a value of `state`.
// The text names the file and the tensor.
void load_checkpoint(const std::string& folder, const ModelState& state, const Locate& locate,
                     Communicator& comm);

// Returns the step of the latest checkpoint in `directory`, or nothing if there is none.
std::optional<int64_t> latest_step(const std::string& directory);

// Removes the folders step-N.part, which interrupted saves have left in `directory`.
void remove_unfinished_checkpoints(const std::string& directory);

// Removes all checkpoints in `directory` except the latest `keep`, and the folders step-N.part,
// which interrupted saves have left.
void remove_old_checkpoints(const std::string& directory, int64_t keep);

}  // namespace fsdp
