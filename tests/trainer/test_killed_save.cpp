#include <comm/communicator.h>
#include <comm/communicator_options.h>
#include <launch/shared_region.h>
#include <signal.h>
#include <state/async_save.h>
#include <state/checkpoint.h>
#include <sys/wait.h>
#include <testing/multi_rank.h>
#include <unistd.h>

#include <functional>
#include <random>
#include <string>

#include <common/exit_status.h>
#include <common/fork_process.h>
#include <common/temporary_folder.h>
#include "saved_state.h"

namespace fsdp {
namespace {

using Save = std::function<void(const std::string& folder, CheckpointFormat format, int64_t step,
                                Communicator& comm)>;

// Saves one checkpoint after another until the process is killed.
[[noreturn]] void save_for_ever(const std::string& folder, int64_t step, const Save& save) {
  at::set_num_threads(1);
  const auto comm = Communicator::create({0, 1, SharedRegion::create(1, size_t{1} << 20)});
  for (;; ++step) {
    const auto format = step % 2 == 0 ? CheckpointFormat::full : CheckpointFormat::sharded;
    save(folder, format, step, *comm);
  }
}

// At random moments, kills processes that save checkpoints. Expects that each leaves a checkpoint
// that loads.
void expect_loadable_after_kills(const Save& save) {
  constexpr int kKills = 5;
  const TemporaryFolder folder;
  std::mt19937 random(1);  // NOLINT: every run of the test draws the same numbers
  for (int i = 0; i < kKills; ++i) {
    const int64_t before = latest_step(folder.path()).value_or(0);
    const pid_t child =
        fork_process([&]() -> int { save_for_ever(folder.path(), before + 1, save); });
    // The child process saves at least one checkpoint. Then the test looks into the folder a random
    // number of times, so that it kills the child at a random moment of a save.
    while (latest_step(folder.path()).value_or(0) == before)
      ASSERT_EQ(waitpid(child, nullptr, WNOHANG), 0) << "the child ended before it was killed";
    for (auto looks = random() % 200; looks > 0; --looks)
      latest_step(folder.path());
    kill(child, SIGKILL);
    status_of(child);
    run_ranks(1, [&](TestRank& rank) {
      const ModelState state = whole_state(true);
      load_checkpoint(find_checkpoint(folder.path()).folder, state, nullptr, *rank.communicator());
      EXPECT_TRUE(equal(state, whole_state()));
    });
  }
}

TEST(KilledSave, a_process_killed_while_it_saves_leaves_a_checkpoint_that_loads) {
  expect_loadable_after_kills(
      [](const std::string& folder, CheckpointFormat format, int64_t step, Communicator& comm) {
        save_checkpoint(folder, format, step, {}, whole_state(), comm);
        remove_old_checkpoints(folder, 1);
      });
}

TEST(KilledSave, a_process_killed_while_a_thread_saves_leaves_a_checkpoint_that_loads) {
  expect_loadable_after_kills(
      [](const std::string& folder, CheckpointFormat format, int64_t step, Communicator& comm) {
        async_save(folder, format, step, {}, whole_state(), comm, [&] {
          remove_old_checkpoints(folder, 1);
        })->wait();
      });
}

}  // namespace
}  // namespace fsdp
