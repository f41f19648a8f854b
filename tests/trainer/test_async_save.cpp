#include <comm/communicator.h>
#include <state/async_save.h>
#include <state/checkpoint.h>
#include <state/checkpoint_folder.h>
#include <sys/resource.h>
#include <task5_sharded_optimizer/each_element.h>
#include <testing/multi_rank.h>

#include <algorithm>
#include <future>

#include <common/expect_text.h>
#include <common/files_below.h>
#include <common/files_in.h>
#include <common/temporary_folder.h>
#include "saved_state.h"

namespace fsdp {
namespace {

using Json = nlohmann::ordered_json;

const std::vector<std::pair<std::string, CheckpointFormat>> kFormats{
    {"sharded", CheckpointFormat::sharded}, {"full", CheckpointFormat::full}};

MULTI_RANK_SUITE(AsyncSave);

ModelState state_of(const TestRank& rank) {
  return cut_state(rank.rank(), rank.world_size());
}

MULTI_RANK_TEST(AsyncSave, an_async_save_writes_the_same_files_as_save_checkpoint) {
  const TemporaryFolder plain, async;
  run_ranks(world_size(), [&](TestRank& rank) {
    Communicator& comm = *rank.communicator();
    for (const auto& [name, format] : kFormats) {
      const Json run{{"model", name}};
      save_checkpoint(plain.path() + '/' + name, format, 3, run, state_of(rank), comm);
      async_save(async.path() + '/' + name, format, 3, run, state_of(rank), comm)->wait();
    }
  });
  EXPECT_EQ(files_below(async.path()), files_below(plain.path()));
}

MULTI_RANK_TEST(AsyncSave,
                tensors_that_change_after_async_save_has_returned_do_not_change_the_files) {
  const TemporaryFolder folder;
  run_ranks(world_size(), [&](TestRank& rank) {
    Communicator& comm = *rank.communicator();
    for (const auto& [name, format] : kFormats) {
      const std::string path = folder.path() + '/' + name;
      const ModelState state = state_of(rank);
      const auto save = async_save(path, format, 3, {}, state, comm);
      for (const StateRange& range : state.ranges)
        for (const StateKind kind : kStateKinds)
          if (const at::Tensor& tensor = tensor_of(range, kind); tensor.defined()) tensor.zero_();
      save->wait();
      load_checkpoint(find_checkpoint(path).folder, state, each_element, comm);
      EXPECT_TRUE(equal(state, state_of(rank)));
    }
  });
}

// Four ranks form two replicas of two ranks. Both replicas hold the same state, so only the ranks
// of one of them write it.
TEST(AsyncSaveOfReplicas, in_an_async_save_only_the_ranks_of_one_replica_write) {
  const TemporaryFolder plain, async;
  run_ranks(4, [&](TestRank& rank) {
    Communicator& comm = *rank.hybrid(2);
    const ModelState state = cut_state(comm.rank(), comm.world_size());
    save_checkpoint(plain.path(), CheckpointFormat::sharded, 3, {}, state, comm);
    async_save(async.path(), CheckpointFormat::sharded, 3, {}, state, comm)->wait();
  });
  EXPECT_EQ(files_below(async.path()), files_below(plain.path()));
}

// async_save() calls `then` after the save. Here `then` waits until the ranks have called done()
// several times, so they must continue meanwhile.
MULTI_RANK_TEST(AsyncSave, ranks_continue_while_a_thread_writes_the_checkpoint_in_the_background) {
  const TemporaryFolder folder;
  run_ranks(world_size(), [&](TestRank& rank) {
    std::promise<void> gate;
    bool followed = false;
    const auto then = [&, open = gate.get_future().share()] {
      open.wait();
      followed = latest_step(folder.path()) == 3;
    };
    const auto save = async_save(folder.path(), CheckpointFormat::sharded, 3, {}, state_of(rank),
                                 *rank.communicator(), then);
    for (int i = 0; i < 10; ++i)
      EXPECT_FALSE(save->done());
    gate.set_value();
    save->wait();
    EXPECT_TRUE(save->done());
    EXPECT_EQ(followed, rank.rank() == 0);
    EXPECT_EQ(latest_step(folder.path()), 3);
  });
}

// async_save() calls `then` in the thread of rank 0.
TEST(AsyncSaveThread, the_thread_of_an_async_save_is_nicer_than_its_rank) {
  const TemporaryFolder folder;
  run_ranks(1, [&](TestRank& rank) {
    int of_thread = 0;
    const auto then = [&] { of_thread = getpriority(PRIO_PROCESS, 0); };
    async_save(folder.path(), CheckpointFormat::sharded, 3, {}, state_of(rank),
               *rank.communicator(), then)
        ->wait();
    EXPECT_EQ(of_thread, std::min(19, getpriority(PRIO_PROCESS, 0) + 10));
  });
}

MULTI_RANK_TEST(
    AsyncSave,
    if_a_rank_cannot_write_its_part_an_async_save_fails_on_all_ranks_and_leaves_no_files) {
  const TemporaryFolder folder;
  run_ranks(world_size(), [&](TestRank& rank) {
    Communicator& comm = *rank.communicator();
    for (const auto& [name, format] : kFormats) {
      ModelState state = state_of(rank);
      // On the failing rank, one range of the state has only half of its bytes. In the full format
      // only rank 0 writes, so rank 0 fails.
      const int failing = name == "full" ? 0 : rank.world_size() - 1;
      if (rank.rank() == failing) state.ranges[0].value = state.ranges[0].value.to(at::kHalf);
      const auto save = async_save(folder.path(), format, 3, {}, state, comm);
      const std::string error = error_of<std::runtime_error>([&] { save->wait(); });
      EXPECT_CONTAINS(error, "bytes are missing");
      EXPECT_EQ(error_of<std::runtime_error>([&] { save->done(); }), error);
      EXPECT_EQ(files_in(folder.path()), 0);
    }
    async_save(folder.path(), CheckpointFormat::sharded, 3, {}, state_of(rank), comm)->wait();
    EXPECT_EQ(latest_step(folder.path()), 3);
  });
}

// The test sets a limit for the size of a file (RLIMIT_FSIZE), so that writing fails as it does on
// a full disk.
MULTI_RANK_TEST(AsyncSave,
                if_the_disk_is_full_an_async_save_fails_on_all_ranks_and_leaves_no_files) {
  const TemporaryFolder folder;
  run_ranks(world_size(), [&](TestRank& rank) {
    Communicator& comm = *rank.communicator();
    rlimit former{};
    getrlimit(RLIMIT_FSIZE, &former);
    const rlimit limit{64, former.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    const auto save =
        async_save(folder.path(), CheckpointFormat::sharded, 3, {}, state_of(rank), comm);
    const std::string error = error_of<std::runtime_error>([&] { save->wait(); });
    setrlimit(RLIMIT_FSIZE, &former);
    EXPECT_CONTAINS(error, step_folder(folder.path(), 3) + ".part/rank-0000-of-000");
    EXPECT_CONTAINS(error, ".safetensors: can't be written: File too large");
    EXPECT_EQ(files_in(folder.path()), 0);
  });
}

MULTI_RANK_TEST(AsyncSave, an_async_save_does_not_overwrite_an_existing_checkpoint_of_its_step) {
  const TemporaryFolder folder;
  run_ranks(world_size(), [&](TestRank& rank) {
    const auto save = [&] {
      return async_save(folder.path(), CheckpointFormat::sharded, 3, {}, state_of(rank),
                        *rank.communicator());
    };
    save()->wait();
    EXPECT_EQ(error_of<std::runtime_error>(save),
              step_folder(folder.path(), 3) + ": is there already");
  });
}

// This test uses one rank, because several ranks might still write into the folder while rank 0
// removes it.
TEST(AbandonedAsyncSave, an_async_save_that_is_destroyed_before_it_is_complete_leaves_no_files) {
  const TemporaryFolder folder;
  run_ranks(1, [&](TestRank& rank) {
    for (const auto& [name, format] : kFormats)
      async_save(folder.path(), format, 3, {}, state_of(rank), *rank.communicator());
    EXPECT_EQ(files_in(folder.path()), 0);
  });
}

}  // namespace
}  // namespace fsdp
