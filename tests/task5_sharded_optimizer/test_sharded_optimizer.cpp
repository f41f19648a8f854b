#include <memory/live_bytes.h>
#include <poll.h>
#include <sharded_optimizer.h>
#include <testing/call_text.h>
#include <testing/multi_rank.h>
#include <unistd.h>

#include <cmath>

namespace fsdp {
namespace {

const std::vector<std::vector<int64_t>> kShapes{{5, 7}, {3}, {2, 3, 4}, {40}};

std::vector<NamedParameter> make_parameters() {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(uint64_t{7});
  std::vector<NamedParameter> parameters;
  const std::vector<std::string> names{"a.weight", "a.bias", "b.weight", "b.bias"};
  for (size_t i = 0; i < kShapes.size(); ++i) {
    parameters.push_back({names[i], at::randn(kShapes[i], generator)});
    parameters.back().tensor.set_requires_grad(true);
  }
  return parameters;
}

// Two units of two parameters each.
std::vector<std::shared_ptr<FlatParameter>> make_units(TestRank& rank,
                                                       const std::vector<NamedParameter>& p) {
  auto comm = rank.communicator();
  return {std::make_shared<FlatParameter>("a", std::vector<NamedParameter>{p[0], p[1]}, comm),
          std::make_shared<FlatParameter>("b", std::vector<NamedParameter>{p[2], p[3]}, comm)};
}

// The mean gradient of step `step`, the same for every rank.
at::Tensor gradient(size_t parameter, int step) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(1000 * parameter + step);
  return at::randn(kShapes[parameter], generator);
}

// Every rank contributes the same gradient, so that the mean is exact where W is a power of two;
// for others the sum of W equal numbers and its division may round, on the oracle too.
at::Tensor mean_of_equal(const at::Tensor& gradient, int world_size) {
  at::Tensor sum = gradient.clone();
  for (int i = 1; i < world_size; ++i)
    sum += gradient;
  return sum / world_size;
}

void reduce_gradients(const std::vector<std::shared_ptr<FlatParameter>>& units, int step) {
  for (size_t u = 0; u < 2; ++u) {
    for (size_t i = 0; i < 2; ++i) {
      auto parameter = units[u]->parameters()[i].tensor;
      if (!parameter.requires_grad()) continue;
      parameter.mutable_grad() = gradient(2 * u + i, step);
      units[u]->collect_gradient(i);
    }
    units[u]->reduce_gradient();
    units[u]->wait_for_reduction();
  }
}

// One process: each parameter in storage of a multiple of 16 elements, as the header of
// update_rule.h asks, and one group after the other.
void train_in_one_process(TestRank& rank, int world_size, const std::vector<ParameterGroup>& groups,
                          double max_norm) {
  at::NoGradGuard no_grad;
  const auto parameters = make_parameters();
  std::vector<std::vector<Piece>> pieces(groups.size());
  std::vector<std::vector<size_t>> which(groups.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    at::Tensor padded = at::zeros({(parameters[i].tensor.numel() + 15) / 16 * 16});
    padded.slice(0, 0, parameters[i].tensor.numel()).copy_(parameters[i].tensor.flatten());
    const size_t group = group_of(parameters[i].name, groups);
    pieces[group].push_back({padded, {}, {}, {}, {}});
    which[group].push_back(i);
  }
  for (int step = 0; step < 3; ++step) {
    std::vector<at::Tensor> gradients;
    for (size_t i = 0; i < 4; ++i)
      gradients.push_back(mean_of_equal(gradient(i, step), world_size));
    double norm = 0;
    if (max_norm > 0) {
      // The same sums in the same order as over the shards.
      for (int r = 0; r < world_size; ++r) {
        double of_rank = 0;
        for (size_t u = 0; u < 2; ++u) {
          const FlatLayout layout =
              flat_layout({gradients[2 * u].numel(), gradients[2 * u + 1].numel()}, world_size);
          at::Tensor flat = at::zeros({layout.padded_numel});
          for (size_t i = 0; i < 2; ++i) {
            flat.narrow(0, layout.offsets[i], gradients[2 * u + i].numel())
                .copy_(gradients[2 * u + i].flatten());
          }
          of_rank += sum_of_squares(flat.chunk(world_size)[static_cast<size_t>(r)].contiguous());
        }
        norm += of_rank;
      }
      norm = std::sqrt(norm);
      for (auto& g : gradients)
        g.mul_(std::min(1.0, max_norm / (norm + 1e-6)));
      rank.observe("norm " + std::to_string(step), norm);
    }
    for (size_t group = 0; group < groups.size(); ++group) {
      for (size_t i = 0; i < pieces[group].size(); ++i) {
        Piece& piece = pieces[group][i];
        const at::Tensor& g = gradients[which[group][i]];
        piece.gradient = at::zeros_like(piece.parameter);
        piece.gradient.slice(0, 0, g.numel()).copy_(g.flatten());
      }
      update(groups[group].options, pieces[group]);
    }
  }
  for (size_t group = 0; group < groups.size(); ++group) {
    for (size_t i = 0; i < pieces[group].size(); ++i) {
      const auto& parameter = parameters[which[group][i]];
      rank.observe(parameter.name, pieces[group][i]
                                       .parameter.slice(0, 0, parameter.tensor.numel())
                                       .view(parameter.tensor.sizes()));
    }
  }
}

void train_on_shards(TestRank& rank, const std::vector<ParameterGroup>& groups, double max_norm) {
  const auto units = make_units(rank, make_parameters());
  ShardedOptimizer optimizer(units, groups, rank.communicator());
  for (int step = 0; step < 3; ++step) {
    reduce_gradients(units, step);
    if (max_norm > 0) {
      rank.observe("norm " + std::to_string(step), optimizer.clip_grad_norm(max_norm));
    }
    optimizer.step();
    optimizer.zero_grad();
  }
  for (const auto& unit : units) {
    unit->unshard();
    for (const auto& p : unit->parameters())
      rank.observe(p.name, p.tensor.detach());
    const at::Tensor& shard = unit->shard();
    rank.observe("shard of " + unit->unit(), shard);
  }
}

void expect_as_one_process(int world_size, const std::vector<ParameterGroup>& groups,
                           double max_norm = 0) {
  const RankRun expected = run_ranks(
      1, [&](TestRank& rank) { train_in_one_process(rank, world_size, groups, max_norm); });
  const RankRun run =
      run_ranks(world_size, [&](TestRank& rank) { train_on_shards(rank, groups, max_norm); });
  for (const char* name : {"a.weight", "a.bias", "b.weight", "b.bias"}) {
    expect_on_all_ranks(run, name, expected.at(0, name));
  }
  for (int step = 0; max_norm > 0 && step < 3; ++step) {
    const std::string name = "norm " + std::to_string(step);
    expect_on_all_ranks(run, name, expected.at(0, name));
  }
}

OptimizerOptions adamw(double weight_decay = 0.01) {
  OptimizerOptions options;
  options.lr = 0.1;
  options.weight_decay = weight_decay;
  return options;
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

TEST_P(T5_1_step_on_shards, a_parameter_that_no_group_takes_is_named) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    try {
      ShardedOptimizer optimizer(units, {{"weight", adamw()}}, rank.communicator());
      FAIL() << "nothing was thrown";
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find("a.bias"), std::string::npos) << error.what();
    }
  });
}

TEST_P(T5_1_step_on_shards, the_state_takes_two_shards_and_a_count_per_piece) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    ShardedOptimizer optimizer(units, {{"", adamw()}}, rank.communicator());
    rank.observe("before the first step", live_bytes::now()[MemoryClass::optimizer_state]);
    reduce_gradients(units, 0);
    optimizer.step();
    rank.observe("after it", live_bytes::now()[MemoryClass::optimizer_state]);
  });
  expect_on_all_ranks(run, "before the first step", 0);
  for (int r = 0; r < world_size(); ++r) {
    int64_t expected = 0;
    for (const int64_t used :
         {48 + 16, 32 + 48}) {  // [elements] of units a and b, rounded up to 16
      const int64_t shard = round_up(used, 16 * world_size()) / world_size();
      const int64_t mine = std::clamp<int64_t>(used - r * shard, 0, shard);
      expected += mine > 0 ? 2 * 4 * mine + 4 : 0;
    }
    expect_on_rank(run, r, "after it", expected);
  }
}

TEST_P(T5_1_step_on_shards, what_was_gathered_before_a_step_is_gathered_anew_after_it) {
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

TEST_P(T5_1_step_on_shards, takes_no_collective) {
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

TEST_P(T5_1_step_on_shards, a_step_without_gradients_names_the_unit) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    ShardedOptimizer optimizer(units, {{"", adamw()}}, rank.communicator());
    try {
      optimizer.step();
      FAIL() << "nothing was thrown";
    } catch (const std::logic_error& error) {
      EXPECT_NE(std::string(error.what()).find("unit a "), std::string::npos) << error.what();
    }
  });
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
    rank.observe("unchanged", before.equal(units[0]->parameters()[0].tensor));
    rank.observe("changed", !make_parameters()[1].tensor.equal(units[0]->parameters()[1].tensor));
    rank.observe("state", live_bytes::now()[MemoryClass::optimizer_state]);
  });
  expect_on_all_ranks(run, "unchanged", true);
  expect_on_all_ranks(run, "changed", true);
  int64_t state = 0;
  for (int r = 0; r < world_size(); ++r)
    state += run.at(r, "state").get<int64_t>();
  EXPECT_EQ(state, 2 * 4 * 16 + 4);  // the one trainable parameter, padded, and its step count
}

MULTI_RANK_SUITE(T5_2_padding);

// Puts `value` into those elements of the shard that belong to no parameter.
void fill_padding(const FlatParameter& unit, float value) {
  at::Tensor is_padding = at::ones({unit.layout().padded_numel}, at::kBool);
  for (size_t i = 0; i < unit.parameters().size(); ++i) {
    is_padding.narrow(0, unit.layout().offsets[i], unit.parameters()[i].tensor.numel())
        .fill_(false);
  }
  at::Tensor shard = unit.shard();
  shard.masked_fill_(is_padding.narrow(0, unit.shard_offset(), unit.shard_numel()), value);
}

TEST_P(T5_2_padding, reaches_neither_the_norm_nor_a_parameter) {
  const auto train = [&](float padding) {
    return run_ranks(world_size(), [padding](TestRank& rank) {
      const auto units = make_units(rank, make_parameters());
      ShardedOptimizer optimizer(units, {{"", adamw(0.3)}}, rank.communicator());
      for (int step = 0; step < 3; ++step) {
        for (const auto& unit : units)
          fill_padding(*unit, padding);
        reduce_gradients(units, step);
        rank.observe("norm " + std::to_string(step), optimizer.clip_grad_norm(0.5));
        optimizer.step();
        optimizer.zero_grad();
      }
      for (const auto& unit : units) {
        unit->unshard();
        for (const auto& [name, parameter] : unit->parameters())
          rank.observe(name, parameter.detach());
      }
    });
  };
  const RankRun zero = train(0);
  const RankRun nan = train(std::numeric_limits<float>::quiet_NaN());
  for (const std::string name : {"norm 0", "norm 2", "a.weight", "a.bias", "b.weight", "b.bias"})
    expect_on_all_ranks(nan, name, zero.at(0, name));
}

MULTI_RANK_SUITE(T5_3_global_norm);

TEST_P(T5_3_global_norm, clipping_equals_one_process_bit_by_bit) {
  expect_as_one_process(world_size(), {{"bias", adamw(0)}, {"", adamw()}}, 0.5);
}

TEST_P(T5_3_global_norm, a_norm_below_the_limit_changes_nothing) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    ShardedOptimizer optimizer(units, {{"", adamw()}}, rank.communicator());
    reduce_gradients(units, 0);
    const at::Tensor before = units[0]->sharded_gradient().clone();
    optimizer.clip_grad_norm(1e9);
    rank.observe("unchanged", before.equal(units[0]->sharded_gradient()));
  });
  expect_on_all_ranks(run, "unchanged", true);
}

TEST_P(T5_3_global_norm, takes_one_all_reduce_of_one_number) {
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
