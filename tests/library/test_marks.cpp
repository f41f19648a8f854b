#include <common/expect_text.h>
#include <library/models.h>
#include <library/one_process.h>

#include <thread>

// Tests fully_shard(module), which marks a module. wrap_marked() then makes the module a unit,
// whichever threads of the process call the two functions.
namespace fsdp {
namespace {

// Runs `body` in another thread, waits for it, and rethrows its exception.
void in_a_thread(const std::function<void()>& body) {
  std::exception_ptr thrown;
  std::thread([&] {
    try {
      body();
    } catch (...) {
      thrown = std::current_exception();
    }
  }).join();
  if (thrown) std::rethrow_exception(thrown);
}

MULTI_RANK_SUITE_ON(Mark, 1, 2, 3);

MULTI_RANK_TEST(Mark, a_module_marked_by_fully_shard_is_marked_for_other_threads_too) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto net = block_net();
    fully_shard(*net->blocks[0]);
    in_a_thread([&] { fully_shard(*net->blocks[2]); });
    const auto comm = rank.communicator();
    in_a_thread([&] {
      WarningsOf warnings;
      FullyShardedDataParallel model(*net, comm, {.wrap = wrap_marked()});
      EXPECT_EQ(model.units().size(), 3U);
      EXPECT_EQ(warnings.texts, "");
      loss_of(*net, rank).backward();
    });
    loss_of(*net, rank).backward();
  });
}

MULTI_RANK_TEST(Mark,
                a_module_marked_by_fully_shard_but_not_sharded_throws_when_any_thread_calls_it) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto net = block_net();
    in_a_thread([&] { fully_shard(*net->blocks[0]); });
    for (const bool other : {false, true}) {
      const auto call = [&] { loss_of(*net, rank); };
      EXPECT_CONTAINS(error_of([&] { other ? in_a_thread(call) : call(); }),
                      "fully_shard(module) has marked it");
    }
  });
}

// The allocator is likely to give a new module the address of a marked module that was destroyed.
TEST(MarkOfOneProcess, a_new_module_at_the_address_of_a_destroyed_marked_module_is_not_marked) {
  run_ranks(1, [](TestRank& rank) {
    for (int i = 0; i < 20; ++i) {
      const auto net = block_net();
      EXPECT_TRUE(wrap_marked()(*net).empty());
      fully_shard(*net->blocks[1]);
      EXPECT_EQ(wrap_marked()(*net), std::vector<Module*>{net->blocks[1].get()});
    }
  });
}

TEST(MarkOfOneProcess, several_threads_can_mark_modules_with_fully_shard_at_the_same_time) {
  run_ranks(1, [](TestRank& rank) {
    std::vector<std::shared_ptr<BlockNet>> nets;
    for (int i = 0; i < 4; ++i)
      nets.push_back(block_net(50));
    std::vector<std::thread> threads;
    for (const auto& net : nets)
      threads.emplace_back([&net] {
        for (const auto& block : net->blocks)
          fully_shard(*block);
      });
    for (std::thread& thread : threads)
      thread.join();
    for (const auto& net : nets)
      EXPECT_EQ(wrap_marked()(*net).size(), 50U);
  });
}

}  // namespace
}  // namespace fsdp
