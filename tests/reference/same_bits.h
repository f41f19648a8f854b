#pragma once

#include <train/checkpoints.h>

#include <string>

#include "trained.h"

// Compares runs in other modes, with other numbers of ranks or shard sizes, with a run in a single
// process.
namespace fsdp {

class SameBits {
 public:
  explicit SameBits(const TrainConfig& single) : expected_(train(single, folder_)) {
    EXPECT_EQ(expected_["live_bytes_mismatches"], 0);
  }

  // Trains with `config`. Fails unless this run ends with the same parameters and optimizer state,
  // bit by bit, as the run in a single process, and unless it needs the predicted bytes of memory
  // and exchanges the predicted bytes. Failures show `what`.
  void expect_of(const TrainConfig& config, const std::string& what) const {
    SCOPED_TRACE(what);
    const auto run = train(config, folder_);
    EXPECT_EQ(run["param_sha256"], expected_["param_sha256"]);
    EXPECT_EQ(run["state_sha256"], expected_["state_sha256"]);
    EXPECT_EQ(run["live_bytes_mismatches"], 0);
    EXPECT_EQ(run["comm_bytes"], run["comm_bytes_predicted"]);
  }

  // Trains `first`, which saves a checkpoint at its end. Then calls expect_of() for `second`, which
  // resumes from the checkpoint.
  void expect_of_resumed(TrainConfig first, TrainConfig second) const {
    first.checkpoint.dir = second.checkpoint.dir = folder_.path() + "/saved";
    first.checkpoint.save_every = first.training.steps;
    train(first, folder_);
    go_on_from(find_checkpoint(second.checkpoint.dir), second);
    expect_of(second, "resumed on " + std::to_string(second.ranks.world) + " ranks");
  }

 private:
  TemporaryFolder folder_;
  // The parsed last line of the JSON file of the run in one process, with which the other runs are
  // compared.
  nlohmann::json expected_;
};

}  // namespace fsdp
