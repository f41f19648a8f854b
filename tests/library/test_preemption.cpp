#include <comm/communicator.h>
#include <gtest/gtest.h>
#include <hosts/start.h>
#include <launch/rank_context.h>
#include <sys/wait.h>
#include <unistd.h>

#include <common/exit_status.h>
#include <common/fork_process.h>
#include <common/shared_words.h>
#include <common/temporary_folder.h>
#include <library/one_process.h>

#include <csignal>
#include <filesystem>

namespace fsdp {
namespace {

volatile std::sig_atomic_t asked_to_end = 0;

// Trains as docs/checkpoints.md shows, but without a last step: only a signal ends the training.
// `steps` counts the steps of each rank.
int train_until_asked(const std::string& file, SharedWords& steps) {
  for (const int signal : {SIGUSR1, SIGTERM})
    std::signal(signal, [](int) { asked_to_end = 1; });
  return start(2, [&](const RankContext& context) {
    const auto comm = Communicator::create(context);
    const auto net = block_net();
    FullyShardedDataParallel model(*net, comm);
    for (;;) {
      model(at::ones({1, 7})).sum().backward();
      ++steps[context.rank];
      const at::Tensor ends = at::full({1}, static_cast<float>(asked_to_end));
      comm->all_reduce(ends, "asked to end").wait();
      if (ends.item<float>() == 0) continue;
      save_state_dict(model.state_dict(), file, *comm);
      return 0;
    }
  });
}

TEST(Preemption, all_ranks_save_and_end_after_the_same_step_when_a_signal_comes) {
  for (const int signal : {SIGUSR1, SIGTERM}) {
    const TemporaryFolder folder;
    SharedWords steps;
    const pid_t launcher = fork_process([&] {
      alarm(30);
      return train_until_asked(folder.path() + "/model.pt", steps);
    });
    while (steps[0] < 3 || steps[1] < 3)
      sched_yield();
    kill(launcher, signal);
    EXPECT_EQ(status_of(launcher), 0) << "signal " << signal;
    EXPECT_EQ(steps[0], steps[1]);
    EXPECT_TRUE(std::filesystem::exists(folder.path() + "/model.pt"));
  }
}

}  // namespace
}  // namespace fsdp
