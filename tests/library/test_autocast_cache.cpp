#include <ATen/autocast_mode.h>

#include <library/one_process.h>

// Autocast keeps the casts of parameters from one forward to the next.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(AutocastCache);

// The first training is the reference: it calls clear_cache() before each step. Each of the others
// runs, before each step, one kind of forward that leaves casts in the cache, and does not call
// clear_cache(). It must end with the parameters of the reference.
MULTI_RANK_TEST(AutocastCache, a_step_under_autocast_uses_no_cast_that_an_earlier_forward_cached) {
  const std::vector<std::pair<std::string, std::function<void(ShardedNet&)>>> kinds{
      {"nothing", [](ShardedNet&) {}},
      {"a forward without gradients",
       [](ShardedNet& sharded) {
         const at::NoGradGuard no_grad;
         loss_of(*sharded.net, sharded.rank, 7);
       }},
      {"a call of one unit without gradients",
       [](ShardedNet& sharded) {
         const at::NoGradGuard no_grad;
         (*sharded.net->blocks[1])(at::ones({2, 7}));
       }},
      {"a forward whose loss is dropped",
       [](ShardedNet& sharded) { loss_of(*sharded.net, sharded.rank, 7); }},
      {"a step and dropped gradients", [](ShardedNet& sharded) {
         loss_of(*sharded.net, sharded.rank, 7).backward();
         sharded.model.zero_grad();
       }}};
  run_ranks(world_size(), [&](TestRank& rank) {
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::Tensor expected;
    for (const auto& [name, leave_casts] : kinds) {
      ShardedNet sharded(rank, momentum);
      for (int step = 0; step < kSteps; ++step) {
        if (name == "nothing") at::autocast::clear_cache();
        leave_casts(sharded);
        sharded.step(step);
      }
      const at::Tensor found = sharded.all_parameters();
      at::autocast::clear_cache();
      if (!expected.defined()) expected = found;
      EXPECT_TRUE(at::equal(found, expected)) << name;
    }
    at::autocast::set_autocast_enabled(at::kCPU, false);
  });
}

}  // namespace
}  // namespace fsdp
