#include <memory/live_bytes.h>
#include <poll.h>
#include <testing/call_text.h>
#include <testing/expected_shards.h>
#include <unistd.h>

#include <array>
#include <cmath>

#include "two_units.h"

namespace fsdp {
namespace {

// Every rank contributes the same gradient, so that the mean is exact where W is a power of two;
// for others the sum of W equal numbers and its division may round, on the oracle too.
at::Tensor mean_of_equal(const at::Tensor& gradient, int world_size) {
  at::Tensor sum = gradient.clone();
  for (int i = 1; i < world_size; ++i)
    sum += gradient;
  return sum / world_size;
}

// Of parameter `index`, gathered, so that a wrong element is told with the rank that owns it.
Places places_of_parameter(const FlatParameter& unit, size_t index) {
  Places places = places_of_shard(unit);
  places.begin = unit.layout().offsets[index];
  return places;
}

// The norm over the ranks' shards of these gradients: the same sums in the same order.
double norm_over_shards(const std::vector<at::Tensor>& gradients, int world_size) {
  double squares = 0;
  for (int r = 0; r < world_size; ++r) {
    double of_rank = 0;
    for (size_t u = 0; u < 2; ++u) {
      const auto shards = expected_shards({gradients[2 * u], gradients[2 * u + 1]}, world_size);
      of_rank += sum_of_squares(shards[static_cast<size_t>(r)].contiguous());
    }
    squares += of_rank;
  }
  return std::sqrt(squares);
}

// One process: each parameter in storage of a multiple of 16 elements, as the header of
// update_rule.h asks, and one group after the other.
void train_in_one_process(TestRank& rank, int world_size, const std::vector<ParameterGroup>& groups,
                          double max_norm) {
  at::NoGradGuard no_grad;
  const auto parameters = make_parameters();
  std::vector<std::vector<Piece>> pieces(groups.size());
  std::vector<at::Tensor> values, gradients;  // views of the pieces, without their padding
  for (const auto& [name, tensor] : parameters) {
    const at::Tensor value = at::zeros({round_up(tensor.numel(), 16)});
    const at::Tensor gradient = at::zeros_like(value);
    pieces[group_of(name, groups)].push_back({value, gradient, {}, {}, {}});
    values.push_back(value.narrow(0, 0, tensor.numel()).view(tensor.sizes()));
    gradients.push_back(gradient.narrow(0, 0, tensor.numel()).view(tensor.sizes()));
    values.back().copy_(tensor);
  }
  for (int step = 0; step < 3; ++step) {
    for (size_t i = 0; i < gradients.size(); ++i)
      gradients[i].copy_(mean_of_equal(gradient(i, step), world_size));
    if (max_norm > 0) {
      const double norm = norm_over_shards(gradients, world_size);
      for (const at::Tensor& g : gradients)
        g.mul_(std::min(1.0, max_norm / (norm + 1e-6)));
      rank.observe(norm_of_step(step), norm);
    }
    for (size_t group = 0; group < groups.size(); ++group)
      update(groups[group].options, pieces[group]);
  }
  for (size_t i = 0; i < values.size(); ++i)
    rank.observe(parameters[i].name, values[i]);
}

void train_on_shards(TestRank& rank, const std::vector<ParameterGroup>& groups, double max_norm) {
  const auto units = make_units(rank, make_parameters());
  ShardedOptimizer optimizer(units, groups, rank.communicator());
  for (int step = 0; step < 3; ++step) {
    reduce_gradients(units, step);
    if (max_norm > 0) {
      rank.observe(norm_of_step(step), optimizer.clip_grad_norm(max_norm));
    }
    optimizer.step();
    optimizer.zero_grad();
  }
  for (const auto& unit : units) {
    unit->unshard();
    for (size_t i = 0; i < unit->parameters().size(); ++i) {
      const auto& [name, parameter] = unit->parameters()[i];
      rank.observe(name, parameter.detach(), places_of_parameter(*unit, i));
    }
  }
}

void expect_as_one_process(int world_size, const std::vector<ParameterGroup>& groups,
                           double max_norm = 0) {
  const RankRun expected =
      run_oracle([&](TestRank& rank) { train_in_one_process(rank, world_size, groups, max_norm); });
  const RankRun run =
      run_ranks(world_size, [&](TestRank& rank) { train_on_shards(rank, groups, max_norm); });
  for (const char* name : {"a.weight", "a.bias", "b.weight", "b.bias"}) {
    expect_on_all_ranks(run, name, expected.at(0, name));
  }
  for (int step = 0; max_norm > 0 && step < 3; ++step) {
    const std::string name = norm_of_step(step);
    expect_on_all_ranks(run, name, expected.at(0, name));
  }
}

OptimizerOptions sgd() {
  OptimizerOptions options;
  options.kind = OptimizerOptions::Kind::sgd;
  options.lr = 0.1;
  return options;
}

MULTI_RANK_SUITE(T5_1_step_on_shards);

TEST_P(T5_1_step_on_shards, adamw_equals_one_process_bit_by_bit) {
  expect_as_one_process(world_size(), {{"", adamw()}});
}

TEST_P(T5_1_step_on_shards, sgd_equals_one_process_bit_by_bit) {
  expect_as_one_process(world_size(), {{"", sgd()}});
}

TEST_P(T5_1_step_on_shards, groups_have_their_own_options) {
  expect_as_one_process(world_size(), {{"bias", adamw(0)}, {"", adamw(0.3)}});
}

TEST_P(T5_1_step_on_shards, the_next_all_gather_delivers_the_updated_values) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const at::Tensor before = make_parameters()[0].tensor;
    const auto units = make_units(rank, make_parameters());
    ShardedOptimizer optimizer(units, {{"", adamw()}}, rank.communicator());
    reduce_gradients(units, 0);
    optimizer.step();
    units[0]->unshard();
    rank.observe("unshard() delivers the values from before the step",
                 before.equal(units[0]->parameters()[0].tensor));
  });
  expect_on_all_ranks(run, "unshard() delivers the values from before the step", false);
}

TEST_P(T5_1_step_on_shards, zero_grad_frees_the_gradients) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    ShardedOptimizer optimizer(units, {{"", adamw()}}, rank.communicator());
    reduce_gradients(units, 0);
    optimizer.step();
    optimizer.zero_grad();
    rank.observe("bytes of sharded gradients after zero_grad()",
                 live_bytes::now()[MemoryClass::sharded_gradients]);
  });
  expect_on_all_ranks(run, "bytes of sharded gradients after zero_grad()", 0);
}

TEST_P(T5_1_step_on_shards, an_error_names_a_parameter_that_is_in_no_group) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    try {
      ShardedOptimizer optimizer(units, {{"weight", adamw()}}, rank.communicator());
      FAIL() << "nothing was thrown";
    } catch (const std::invalid_argument& error) {
      expect_error_says(error.what(), "a.bias");
    }
  });
}

TEST_P(T5_1_step_on_shards, the_state_holds_two_shards_and_a_count_per_piece) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    ShardedOptimizer optimizer(units, {{"", adamw()}}, rank.communicator());
    rank.observe("state's bytes before the first step",
                 live_bytes::now()[MemoryClass::optimizer_state]);
    reduce_gradients(units, 0);
    optimizer.step();
    rank.observe("state's bytes after it", live_bytes::now()[MemoryClass::optimizer_state]);
  });
  expect_on_all_ranks(run, "state's bytes before the first step", 0);
  for (int r = 0; r < world_size(); ++r) {
    int64_t moments = 0, fewest = 0, most = 0;
    // [elements] where the parameters of units a and b begin, and where the last ends.
    for (const auto& bounds : {std::array<int64_t, 3>{0, 48, 48 + 16}, {0, 32, 32 + 48}}) {
      const int64_t shard = round_up(bounds[2], 16 * world_size()) / world_size();
      int64_t parameters = 0;  // of the unit, in the shard
      for (size_t i = 0; i < 2; ++i) {
        const int64_t mine =
            std::min(bounds[i + 1], (r + 1) * shard) - std::max(bounds[i], r * shard);
        moments += 2 * 4 * std::max<int64_t>(mine, 0);
        parameters += mine > 0;
      }
      fewest += parameters > 0;
      most += parameters;
    }
    // Neighbours of one group are one piece, or every parameter is one.
    const int64_t counts = run.at(r, "state's bytes after it").get<int64_t>() - moments;
    EXPECT_GE(counts, 4 * fewest)
        << "rank " << r << " lacks state: two moments of what it owns and a count for each piece";
    EXPECT_LE(counts, 4 * most)
        << "rank " << r
        << " keeps state beyond two moments of what it owns and a count for "
           "each piece: of padding, or of what others own";
  }
}

// The sentinel. It asks for no exact bytes, so a step that is wrong in another way passes it.
TEST_P(T5_1_step_on_shards, a_rank_holds_only_a_part_of_the_state) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    ShardedOptimizer optimizer(units, {{"", adamw()}}, rank.communicator());
    reduce_gradients(units, 0);
    optimizer.step();
    rank.observe("bytes of the rank's state", live_bytes::now()[MemoryClass::optimizer_state]);
  });
  // Two moments of each element of the two units; one rank also counts the steps of at most four
  // pieces.
  const int64_t moments = 2 * 4 * (48 + 16 + 32 + 48);
  expect_part_of(run, "bytes of the rank's state", world_size() == 1 ? moments + 4 * 4 : moments);
}

TEST_P(T5_1_step_on_shards, a_step_reshards_units_that_are_unsharded) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    ShardedOptimizer optimizer(units, {{"", sgd()}}, rank.communicator());
    reduce_gradients(units, 0);
    units[0]->unshard();
    const at::Tensor before = units[0]->parameters()[0].tensor.detach().clone();
    optimizer.step();
    rank.observe("gathered bytes after the step", live_bytes::now()[MemoryClass::gathered]);
    units[0]->unshard();
    rank.observe("values are the old ones", before.equal(units[0]->parameters()[0].tensor));
  });
  expect_on_all_ranks(run, "gathered bytes after the step", 0);
  expect_on_all_ranks(run, "values are the old ones", false);
}

// Rank 0 steps as soon as it can, the others read its shard as late as they can: when rank 0 has
// told that its step is done, which it must not while they have not read.
TEST_P(T5_1_step_on_shards, a_step_waits_until_the_other_ranks_have_read_the_shards) {
  int done[2];
  ASSERT_EQ(pipe(done), 0);
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    ShardedOptimizer optimizer(units, {{"", sgd()}}, rank.communicator());
    reduce_gradients(units, 0);
    units[0]->unshard_async();
    if (rank.rank() != 0) {
      pollfd told{done[0], POLLIN, 0};
      poll(&told, 1, 300);
    }
    units[0]->unshard();
    const bool old = make_parameters()[0].tensor.equal(units[0]->parameters()[0].tensor);
    rank.observe("gathered before the step are the values before it", old);
    optimizer.step();
    if (rank.rank() == 0) {
      EXPECT_EQ(write(done[1], "done", 4), 4);
    }
  });
  close(done[0]);
  close(done[1]);
  expect_on_all_ranks(run, "gathered before the step are the values before it", true);
}

TEST_P(T5_1_step_on_shards, a_step_issues_no_collective) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    ShardedOptimizer optimizer(units, {{"", adamw()}}, rank.communicator());
    reduce_gradients(units, 0);
    rank.communicator()->take_log();
    optimizer.step();
    rank.observe("calls", take_calls(*rank.communicator()));
  });
  expect_on_all_ranks(run, "calls", "");
}

TEST_P(T5_1_step_on_shards, a_step_without_gradients_throws_and_names_the_unit) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    ShardedOptimizer optimizer(units, {{"", adamw()}}, rank.communicator());
    try {
      optimizer.step();
      FAIL() << "nothing was thrown";
    } catch (const std::logic_error& error) {
      expect_error_says(error.what(), "unit a");
    }
  });
}

TEST_P(T5_1_step_on_shards, a_refused_step_changes_nothing) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    ShardedOptimizer optimizer(units, {{"", adamw()}}, rank.communicator());
    reduce_gradients(units, 0);
    units[1]->drop_gradient();
    const at::Tensor before = units[0]->shard().clone();
    units[0]->unshard();
    EXPECT_THROW(optimizer.step(), std::logic_error);
    rank.observe("unit a is still unsharded", units[0]->state() == UnitState::unsharded);
    rank.observe("unit a's shard is as before",
                 before.nan_to_num(0).equal(units[0]->shard().nan_to_num(0)));
  });
  expect_on_all_ranks(run, "unit a is still unsharded", true);
  expect_on_all_ranks(run, "unit a's shard is as before", true);
}

TEST_P(T5_1_step_on_shards, a_frozen_parameter_has_neither_state_nor_decay) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    auto parameters = make_parameters();
    for (size_t i : {0, 2, 3})
      parameters[i].tensor.set_requires_grad(false);
    const at::Tensor before = parameters[0].tensor.clone();
    const auto units = make_units(rank, parameters);
    ShardedOptimizer optimizer(units, {{"", adamw(0.5)}}, rank.communicator());
    reduce_gradients(units, 0);
    optimizer.step();
    units[0]->unshard();
    rank.observe("the frozen parameter has its values",
                 before.equal(units[0]->parameters()[0].tensor));
    rank.observe("the other one has new ones",
                 !make_parameters()[1].tensor.equal(units[0]->parameters()[1].tensor));
    rank.observe("state", live_bytes::now()[MemoryClass::optimizer_state]);
  });
  expect_on_all_ranks(run, "the frozen parameter has its values", true);
  expect_on_all_ranks(run, "the other one has new ones", true);
  int64_t state = 0;
  for (int r = 0; r < world_size(); ++r)
    state += run.at(r, "state").get<int64_t>();
  EXPECT_EQ(state, 2 * 4 * 16 + 4);  // the one trainable parameter, padded, and its step count
}

MULTI_RANK_SUITE_ON(T5_3_global_norm, 1, 2, 3, 4, 8);

TEST_P(T5_3_global_norm, clipping_equals_one_process_bit_by_bit) {
  expect_as_one_process(world_size(), {{"bias", adamw(0)}, {"", adamw()}}, 0.5);
}

TEST_P(T5_3_global_norm, a_norm_below_max_norm_changes_nothing) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    ShardedOptimizer optimizer(units, {{"", adamw()}}, rank.communicator());
    reduce_gradients(units, 0);
    const at::Tensor before = units[0]->sharded_gradient().clone();
    optimizer.clip_grad_norm(1e9);
    rank.observe("the gradient is as before", before.equal(units[0]->sharded_gradient()));
  });
  expect_on_all_ranks(run, "the gradient is as before", true);
}

TEST_P(T5_3_global_norm, clipping_scales_all_gradients_by_one_factor) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    ShardedOptimizer optimizer(units, {{"", adamw()}}, rank.communicator());
    reduce_gradients(units, 0);
    const std::vector<at::Tensor> before{units[0]->sharded_gradient().clone(),
                                         units[1]->sharded_gradient().clone()};
    const double norm = optimizer.clip_grad_norm(0.5);
    bool scaled = true;
    for (size_t u = 0; u < units.size(); ++u)
      scaled &= units[u]->sharded_gradient().allclose(before[u] * (0.5 / norm), 1e-4);
    rank.observe("every gradient is max_norm / norm of what it was", scaled);
    rank.observe("the norm afterwards, in hundredths",
                 std::llround(100 * optimizer.clip_grad_norm(1e9)));
  });
  expect_on_all_ranks(run, "the norm afterwards, in hundredths", 50);
  expect_on_all_ranks(run, "every gradient is max_norm / norm of what it was", true);
}

TEST_P(T5_3_global_norm, clipping_issues_one_all_reduce_of_one_number) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    ShardedOptimizer optimizer(units, {{"", adamw()}}, rank.communicator());
    reduce_gradients(units, 0);
    rank.communicator()->take_log();
    rank.observe("norm", optimizer.clip_grad_norm(1.0));
    rank.observe("calls", take_calls(*rank.communicator()));
  });
  expect_on_all_ranks(run, "calls", "all_reduce <norm>; ");
  expect_same_on_all_ranks(run, "norm");
}

}  // namespace
}  // namespace fsdp
