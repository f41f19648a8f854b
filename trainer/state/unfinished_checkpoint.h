#pragma once

#include <comm/communicator.h>
#include <state/checkpoint_folder.h>
#include <state/model_state.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fsdp {

// The folder of a checkpoint until it is complete. It is called step-N.part.
class UnfinishedCheckpoint {
 public:
  // Collective. Makes the folder, empty. Throws std::runtime_error on every rank if the checkpoint
  // exists already, or if the folder cannot be made.
  UnfinishedCheckpoint(const std::string& directory, int64_t step, Communicator& comm);

  const std::string& folder() const { return unfinished_; }

  // For rank 0, when the files of all ranks are on the disk: writes the other files, and gives the
  // folder its name, step-N. `run` and `parameters`: of checkpoint.json. Throws std::runtime_error.
  void complete(const nlohmann::ordered_json& run, const nlohmann::ordered_json& parameters,
                const std::vector<SavedFile>& files) const;

  // For rank 0: removes the folder, whose files would otherwise take the room of the next
  // checkpoint. Does nothing if the folder has its name already.
  void remove() const noexcept;

 private:
  std::string directory_, folder_, unfinished_;
  int64_t step_;
};

// Collective. Returns the files that all ranks have written, in the order of ranks. `own` returns
// those of this rank. Throws as agree_on() does if `own` throws on a rank.
std::vector<SavedFile> files_of_ranks(Communicator& comm,
                                      const std::function<std::vector<SavedFile>()>& own);

// Returns the member `parameters` of checkpoint.json. Throws std::runtime_error, which names the
// parameter, if a name cannot be saved.
nlohmann::ordered_json parameters_json(const std::vector<ModelState::Parameter>& parameters);

}  // namespace fsdp
