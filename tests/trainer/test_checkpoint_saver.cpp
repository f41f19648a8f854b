#include <state/checkpoint.h>

#include <common/expect_text.h>
#include <common/files_in.h>
#include <common/temporary_folder.h>

#include "saved_state.h"
#include "untrained_strategy.h"

namespace fsdp {
namespace {

// A strategy whose second save fails: from the second call of state() on, one range of the last
// rank has only half of its bytes, so the rank cannot write it.
class UnwritableStrategy : public UntrainedStrategy {
 public:
  using UntrainedStrategy::UntrainedStrategy;
  ModelState state() override {
    ModelState state = cut_state(comm_->rank(), comm_->world_size());
    const bool last = comm_->rank() == comm_->world_size() - 1;
    if (states_++ > 0 && last) state.ranges[0].value = state.ranges[0].value.to(at::kHalf);
    return state;
  }

 private:
  int states_{};
};

TEST(CheckpointSaver, an_error_of_an_async_save_ends_the_run_and_names_the_step_to_resume_from) {
  for (const int64_t every : {1, 2}) {
    const TemporaryFolder folder;
    TrainConfig config = small_run();
    config.training.steps = 9;
    config.checkpoint.dir = folder.path();
    config.checkpoint.save_every = every;
    config.checkpoint.async = true;
    const Outcome run = train(with<UnwritableStrategy>(), config);
    EXPECT_EQ(run.status, 1);
    EXPECT_CONTAINS(run.errors, "--checkpoint-dir " + folder.path() + ": step " +
                                    std::to_string(2 * every) + " can't be saved: safetensors: ");
    EXPECT_CONTAINS(run.errors, "; when this is fixed, continue from step " +
                                    std::to_string(every) + " (--resume " + folder.path() + ")\n");
    EXPECT_EQ(latest_step(folder.path()), every);
    EXPECT_EQ(files_in(folder.path()), 1) << "the files of the failed save must be removed";
  }
}

}  // namespace
}  // namespace fsdp
