#include <common/expect_text.h>
#include <library/one_process.h>

#include "replicated_net.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE_ON(DivergedReplica, 2, 3, 4);

MULTI_RANK_TEST(DivergedReplica,
                replicas_of_ddp_whose_values_differ_throw_in_backward_and_in_state_dict) {
  const std::vector<void (*)(ReplicatedNet&)> changes{
      [](ReplicatedNet& one) {
        one.optimizer->param_groups()[0].options().set_lr(0.1 * (1 + one.rank.rank()));
        one.step();
      },
      [](ReplicatedNet& one) { one.net->scale.data().add_(one.rank.rank()); },
      [](ReplicatedNet& one) { one.net->scale.set_data(at::full({7}, 1.0 * one.rank.rank())); },
      [](ReplicatedNet& one) {
        const auto loss = loss_of(*one.net, one.rank);
        one.net->scale.mutable_grad() = torch::autograd::grad({loss}, {one.net->scale})[0];
        one.optimizer->step();
      }};
  run_ranks(world_size(), [&](TestRank& rank) {
    for (const auto& change : changes) {
      ReplicatedNet replicas(rank);
      replicas.step();
      const StateDict before = replicas.model.state_dict();
      change(replicas);
      const char* const says = "ranks differ in the values of parameter ";
      EXPECT_CONTAINS(error_of([&] { replicas.backward(); }), says);
      EXPECT_CONTAINS(error_of([&] { replicas.model.state_dict(); }), says);
      replicas.model.load_state_dict(before);
      replicas.model.zero_grad();
      replicas.backward();
    }
    ReplicatedNet replicas(rank);
    replicas.weight.set_requires_grad(rank.rank() == 1);
    EXPECT_CONTAINS(error_of([&] { replicas.backward(); }),
                    "parameter b0.linear.weight: frozen on rank");
  });
}

MULTI_RANK_TEST(DivergedReplica, a_backward_of_ddp_on_only_some_ranks_throws) {
  const RankRun run = try_ranks(world_size(), [](TestRank& rank) {
    ReplicatedNet replicas(rank);
    if (rank.rank() > 0) replicas.backward();
    replicas.model.state_dict();
  });
  expect_error_says(run.failure(), "what they call: state_dict on rank 0, backward on rank");
}

}  // namespace
}  // namespace fsdp
