#pragma once

#include <comm/communicator.h>
#include <state/checkpoint_folder.h>
#include <state/model_state.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fsdp {

// The folder of a checkpoint that is not complete yet. The folder is called step-N.part.
class UnfinishedCheckpoint {
 public:
  // Collective. Rank 0 makes the empty folder. Throws std::runtime_error on every rank if the
  // checkpoint of this step exists already, or if the folder cannot be made.
  UnfinishedCheckpoint(const std::string& directory, int64_t step, Communicator& comm);

  const std::string& folder() const { return unfinished_; }

  // Only rank 0 calls it, when the files of all ranks are on the disk. Writes checkpoint.json and
  // SHA256SUMS, and renames the folder to step-N. `run` and `parameters` are members of
  // checkpoint.json. Throws std::runtime_error if this fails.
  void complete(const nlohmann::ordered_json& run, const nlohmann::ordered_json& parameters,
                const std::vector<SavedFile>& files) const;

  // Only rank 0 calls it. Removes the folder step-N.part, because its files would take room on the
  // disk that the next checkpoint needs. Does nothing if complete() has renamed the folder.
  void remove() const noexcept;

 private:
  std::string directory_, folder_, unfinished_;
  int64_t step_;
};

// Collective. Returns the files that all ranks of this replica have written, in the order of ranks.
// `own` returns the files of this rank. Throws as agree_on() does if `own` throws on a rank.
std::vector<SavedFile> files_of_ranks(Communicator& comm,
                                      const std::function<std::vector<SavedFile>()>& own);

// Returns the member "parameters" of checkpoint.json: the names and shapes of `parameters`. Throws
// std::runtime_error, which names the parameter, if its name ends like that of an optimizer state
// or of a range, because such a name could not be read again.
nlohmann::ordered_json parameters_json(const std::vector<ModelState::Parameter>& parameters);

}  // namespace fsdp
