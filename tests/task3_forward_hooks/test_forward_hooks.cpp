#include "sharded_toy.h"

namespace fsdp {
namespace {

struct Sharded : ShardedToy {
  explicit Sharded(TestRank& rank, int layers = 2, bool reshard_after_forward = true)
      : ShardedToy(rank, std::make_shared<ToyModel>(layers), reshard_after_forward) {}
};

// What one process computes.
nlohmann::json eager_output() {
  const RankRun run = run_oracle([](TestRank& rank) {
    ToyModel model(2);
    rank.observe("output", model(toy_tokens(0)).detach());
  });
  return run.at(0, "output");
}

MULTI_RANK_SUITE(T3_1_pre_forward);

TEST_P(T3_1_pre_forward, a_unit_is_unsharded_before_its_module_runs) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    std::string seen;
    for (const auto& block : sharded.model->blocks) {
      block->register_forward_pre_hook([&](Module&, const at::Tensor&) {
        seen += sharded.gathered() + "| ";
        return at::Tensor();
      });
    }
    rank.observe("output", (*sharded.model)(toy_tokens(0)).detach());
    rank.observe("units gathered as each block begins", seen);
  });
  expect_on_all_ranks(run, "output", eager_output());
  expect_on_all_ranks(run, "units gathered as each block begins", "root blocks0 | root blocks1 | ");
}

TEST_P(T3_1_pre_forward, each_unit_issues_one_all_gather_in_order) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    (*sharded.model)(toy_tokens(0));
    rank.observe("calls", take_calls(*rank.communicator()));
  });
  expect_on_all_ranks(run, "calls", "all_gather root; all_gather blocks0; all_gather blocks1; ");
}

MULTI_RANK_SUITE(T3_2_post_forward);

TEST_P(T3_2_post_forward, only_the_root_stays_unsharded_for_backward) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    const auto output = (*sharded.model)(toy_tokens(0));
    rank.observe("units gathered afterwards", sharded.gathered());
    rank.observe("gathered bytes after forward", live_bytes::now()[MemoryClass::gathered]);
    rank.observe("root's bytes", sharded.units[0]->layout().padded_numel * 4);
  });
  expect_on_all_ranks(run, "units gathered afterwards", "root ");
  for (int r = 0; r < world_size(); ++r) {
    expect_on_rank(run, r, "gathered bytes after forward", run.at(r, "root's bytes"));
  }
}

TEST_P(T3_2_post_forward, without_reshard_every_unit_stays_unsharded) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank, 2, /*reshard_after_forward=*/false);
    const auto output = (*sharded.model)(toy_tokens(0));
    rank.observe("units gathered afterwards", sharded.gathered());
  });
  expect_on_all_ranks(run, "units gathered afterwards", "root blocks0 blocks1 ");
}

TEST_P(T3_2_post_forward, at_most_one_unit_is_unsharded_besides_the_root) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    rank.communicator();
    const int64_t before = live_bytes::now().total;
    Sharded sharded(rank, 4);
    rank.observe("owned bytes", live_bytes::now().total - before);
    live_bytes::enter(Phase::forward);
    (*sharded.model)(toy_tokens(0));
    rank.observe("peak of gathered bytes", live_bytes::peak(Phase::forward)[MemoryClass::gathered]);
    rank.observe("owned bytes and the root's, after forward", live_bytes::now().total - before);
  });
  const int64_t unit = toy_shard_bytes(0, world_size()) * world_size();
  expect_on_all_ranks(run, "owned bytes", toy_shard_bytes(4, world_size()));
  expect_on_all_ranks(run, "peak of gathered bytes", 2 * unit);
  expect_on_all_ranks(run, "owned bytes and the root's, after forward",
                      toy_shard_bytes(4, world_size()) + unit);
}

// The sentinel. It asks for no exact bytes, so hooks that are wrong in another way pass it.
TEST_P(T3_2_post_forward, after_forward_a_rank_holds_only_a_part_of_the_model) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    rank.communicator();
    const int64_t before = live_bytes::now().total;
    Sharded sharded(rank, 4);
    (*sharded.model)(toy_tokens(0));
    rank.observe("bytes that the rank holds", live_bytes::now().total - before);
  });
  // On one rank the shards are the whole model, and the root is unsharded besides.
  const int64_t root = toy_shard_bytes(0, 1);
  const int64_t whole = toy_shard_bytes(4, world_size()) * world_size();
  expect_part_of(run, "bytes that the rank holds", world_size() == 1 ? whole + root : whole);
}

MULTI_RANK_SUITE(T3_3_nesting);

TEST_P(T3_3_nesting, an_outer_unit_stays_unsharded_while_inner_units_run) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank, 3);
    std::string seen;
    for (const auto& block : sharded.model->blocks) {
      block->register_forward_hook([&](Module&, const at::Tensor&) {
        seen += sharded.units[0]->state() == UnitState::unsharded ? "root is there; "
                                                                  : "root is gone; ";
        return at::Tensor();
      });
    }
    (*sharded.model)(toy_tokens(0));
    rank.observe("as each block ends", seen);
  });
  expect_on_all_ranks(run, "as each block ends", "root is there; root is there; root is there; ");
}

MULTI_RANK_SUITE(T3_4_rough_ground);

TEST_P(T3_4_rough_ground, without_grad_mode_no_unit_stays_unsharded) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    at::NoGradGuard no_grad;
    rank.observe("output", (*sharded.model)(toy_tokens(0)));
    rank.observe("units gathered afterwards", sharded.gathered());
  });
  expect_on_all_ranks(run, "output", eager_output());
  expect_on_all_ranks(run, "units gathered afterwards", "");
}

TEST_P(T3_4_rough_ground, after_an_exception_no_unit_stays_unsharded) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    sharded.model->blocks[1]->fails = true;
    EXPECT_THROW((*sharded.model)(toy_tokens(0)), std::runtime_error);
    rank.observe("units gathered afterwards", sharded.gathered());
    sharded.model->blocks[1]->fails = false;
    rank.observe("output", (*sharded.model)(toy_tokens(0)).detach());
  });
  expect_on_all_ranks(run, "units gathered afterwards", "");
  expect_on_all_ranks(run, "output", eager_output());
}

TEST_P(T3_4_rough_ground, a_module_called_twice_is_unsharded_twice) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    sharded.model->order = {0, 1, 0};
    (*sharded.model)(toy_tokens(0));
    rank.observe("calls", take_calls(*rank.communicator()));
    rank.observe("units gathered afterwards", sharded.gathered());
  });
  expect_on_all_ranks(
      run, "calls",
      "all_gather root; all_gather blocks0; all_gather blocks1; all_gather blocks0; ");
  expect_on_all_ranks(run, "units gathered afterwards", "root ");
}

}  // namespace
}  // namespace fsdp
