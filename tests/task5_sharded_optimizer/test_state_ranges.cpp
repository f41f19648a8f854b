#include <testing/call_text.h>
#include <testing/shared_flag.h>

#include <sstream>

#include "training_on_shards.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(T5_5_state);

using Groups = std::vector<ParameterGroup>;

void train(TrainedUnits& model, int first, int last) {
  for (int step = first; step < last; ++step) {
    reduce_gradients(model.units, step);
    model.optimizer->step();
    model.optimizer->zero_grad();
  }
}

std::string named(const StateRange& range) {
  std::ostringstream text;
  text << range.parameter << " " << range.begin << "-" << range.end << "; ";
  return text.str();
}

// Returns the ranges that state() should return on a rank, as a text of named(). A unit has W equal
// shards, and every parameter begins at a multiple of 16 elements.
std::string expected_ranges(int rank, int world_size) {
  std::string ranges;
  for (const std::string& unit : kUnits) {
    int64_t total = 0;
    for (const Trained& parameter : kParameters)
      if (belongs(parameter, unit)) total += round_up(numel(parameter), kAlignment);
    const int64_t shard = round_up(total, kAlignment * world_size) / world_size;
    int64_t offset = 0;
    for (const Trained& parameter : kParameters) {
      if (!belongs(parameter, unit)) continue;
      const int64_t begin = std::max<int64_t>(rank * shard - offset, 0);
      const int64_t end = std::min((rank + 1) * shard - offset, numel(parameter));
      if (begin < end) ranges += named({parameter.name, begin, end, {}, {}, {}, {}});
      offset += round_up(numel(parameter), kAlignment);
    }
  }
  return ranges;
}

// Returns what state() returns, and observes its ranges for expect_ranges(). Without this check, an
// optimizer whose state() returns an empty list would pass the tests that loop over the ranges.
std::vector<StateRange> observe_ranges(TestRank& rank, TrainedUnits& model) {
  std::string ranges;
  auto state = model.optimizer->state();
  for (const StateRange& range : state)
    ranges += named(range);
  rank.observe("ranges", ranges);
  return state;
}

void expect_ranges(const RankRun& run, const char* file = __builtin_FILE(),
                   int line = __builtin_LINE()) {
  const int ranks = run.world_size();
  expect_on_each_rank(
      run, "ranges", [=](int rank) { return expected_ranges(rank, ranks); }, file, line);
}

at::Tensor elements_of(const at::Tensor& parameter, const StateRange& range) {
  return parameter.detach().reshape({-1}).slice(0, range.begin, range.end);
}

size_t index_of(const std::string& parameter) {
  size_t i = 0;
  while (kParameters[i].name != parameter)
    ++i;
  return i;
}

MULTI_RANK_TEST(T5_5_state,
                state_has_a_range_for_each_parameter_of_which_this_rank_owns_an_element) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    TrainedUnits model(rank);
    observe_ranges(rank, model);
  });
  expect_ranges(run);
}

MULTI_RANK_TEST(T5_5_state, the_values_in_state_are_the_elements_of_the_parameters) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    TrainedUnits model(rank);
    const auto parameters = make_parameters();
    std::string others;
    for (const StateRange& range : observe_ranges(rank, model)) {
      const at::Tensor& parameter = parameters[index_of(range.parameter)].tensor;
      if (!range.value.equal(elements_of(parameter, range))) others += named(range);
    }
    rank.observe("ranges with the values of other elements", others);
  });
  expect_ranges(run);
  expect_on_all_ranks(run, "ranges with the values of other elements", "");
}

// Returns the parameter's whole tensor of one kind (value or a moment) from the ranges of all
// ranks.
at::Tensor assembled(TestRank& rank, const std::vector<StateRange>& ranges, size_t parameter,
                     at::Tensor StateRange::*kind) {
  const at::Tensor whole = at::zeros({numel(kParameters[parameter])});
  for (const StateRange& range : ranges) {
    if (range.parameter == kParameters[parameter].name && (range.*kind).defined())
      whole.slice(0, range.begin, range.end).copy_(range.*kind);
  }
  rank.communicator()->all_reduce(whole, "whole").wait();
  return whole;
}

bool has_state(const Trained& parameter, const Groups& groups = groups_that_differ()) {
  const bool adamw = parameter.trainable && groups[group_of(parameter.name, groups)].options.kind ==
                                                OptimizerOptions::Kind::adamw;
  return adamw && numel(parameter) > 0;
}

void expect_moments_of_one_process(int world_size, const Groups& groups) {
  constexpr int kSteps = 3;
  const RankRun run = run_ranks(world_size, [&](TestRank& rank) {
    TrainedUnits model(rank, groups);
    train(model, 0, kSteps);
    const auto ranges = model.optimizer->state();
    for (size_t i = 0; i < kParameters.size(); ++i) {
      if (!has_state(kParameters[i], groups)) continue;
      const std::string of = " of " + kParameters[i].name;
      rank.observe("exp_avg" + of, assembled(rank, ranges, i, &StateRange::exp_avg));
      rank.observe("exp_avg_sq" + of, assembled(rank, ranges, i, &StateRange::exp_avg_sq));
    }
    std::string counts;
    for (const StateRange& range : ranges)
      if (range.step.defined() && range.step.item<double>() != kSteps) counts += named(range);
    rank.observe("ranges with another count of steps", counts);
  });
  const RankRun expected = run_oracle([&](TestRank& oracle) {
    const at::NoGradGuard no_grad;
    OneProcess model(groups);
    for (int step = 0; step < kSteps; ++step) {
      for (size_t i = 0; i < kParameters.size(); ++i)
        if (kParameters[i].trainable)
          model.gradients[i].copy_(mean_of_equal(gradient(i, step), world_size));
      for (size_t group = 0; group < groups.size(); ++group)
        update(groups[group].options, model.pieces[group]);
    }
    std::vector<size_t> next(groups.size());
    for (const Trained& parameter : kParameters) {
      if (!parameter.trainable || numel(parameter) == 0) continue;
      const size_t group = group_of(parameter.name, groups);
      const Piece& piece = model.pieces[group][next[group]++];
      if (!has_state(parameter, groups)) continue;
      const int64_t end = numel(parameter);
      oracle.observe("exp_avg of " + parameter.name, piece.exp_avg.slice(0, 0, end));
      oracle.observe("exp_avg_sq of " + parameter.name, piece.exp_avg_sq.slice(0, 0, end));
    }
  });
  for (const Trained& parameter : kParameters) {
    if (!has_state(parameter, groups)) continue;
    for (const std::string kind : {"exp_avg of ", "exp_avg_sq of "})
      expect_on_all_ranks(run, kind + parameter.name, expected.at(0, kind + parameter.name));
  }
  expect_on_all_ranks(run, "ranges with another count of steps", "");
}

// Tests one group, in which one piece of a shard may contain neighbouring parameters (they then
// have one step count), and several groups.
MULTI_RANK_TEST(T5_5_state, moments_and_step_counts_in_state_are_those_of_one_process) {
  expect_moments_of_one_process(world_size(), {{"", adamw()}});
  expect_moments_of_one_process(world_size(), groups_that_differ());
}

void expect_moments_where_there_are_any(int world_size, const Groups& groups) {
  const RankRun run = run_ranks(world_size, [&](TestRank& rank) {
    TrainedUnits model(rank, groups);
    train(model, 0, 1);
    std::string wrong;
    for (const StateRange& range : observe_ranges(rank, model)) {
      const bool expected = has_state(kParameters[index_of(range.parameter)], groups);
      for (const at::Tensor& tensor : {range.exp_avg, range.exp_avg_sq, range.step})
        if (tensor.defined() != expected) wrong += named(range);
    }
    rank.observe("ranges with moments that are not, or without moments that are", wrong);
  });
  expect_ranges(run);
  expect_on_all_ranks(run, "ranges with moments that are not, or without moments that are", "");
}

MULTI_RANK_TEST(T5_5_state, state_has_undefined_moments_for_parameters_without_moments) {
  expect_moments_where_there_are_any(world_size(), {{"", adamw()}});
  expect_moments_where_there_are_any(world_size(), groups_that_differ());
}

MULTI_RANK_TEST(T5_5_state, state_needs_no_group_for_a_frozen_parameter) {
  expect_moments_where_there_are_any(world_size(),
                                     {{"bias|gate", sgd()}, {"weight|scale|none|one", adamw()}});
}

void expect_state_before_the_first_step(int world_size, const Groups& groups) {
  const RankRun run = run_ranks(world_size, [&](TestRank& rank) {
    TrainedUnits model(rank, groups);
    std::string wrong;
    for (const StateRange& range : observe_ranges(rank, model)) {
      if (!has_state(kParameters[index_of(range.parameter)], groups)) continue;
      for (const at::Tensor& tensor : {range.exp_avg, range.exp_avg_sq, range.step})
        if (!tensor.defined() || tensor.count_nonzero().item<int64_t>() > 0) wrong += named(range);
    }
    rank.observe("ranges whose state is not zero", wrong);
    const int64_t before = live(MemoryClass::optimizer_state);
    train(model, 0, 1);
    model.optimizer->state();
    rank.observe("bytes of state that the first step adds",
                 live(MemoryClass::optimizer_state) - before);
  });
  expect_ranges(run);
  expect_on_all_ranks(run, "ranges whose state is not zero", "");
  expect_on_all_ranks(run, "bytes of state that the first step adds", 0);
}

MULTI_RANK_TEST(T5_5_state, state_allocates_moments_and_step_counts_before_the_first_step) {
  expect_state_before_the_first_step(world_size(), {{"", adamw()}});
  expect_state_before_the_first_step(world_size(), groups_that_differ());
}

MULTI_RANK_TEST(T5_5_state, training_from_a_state_that_was_written_back_gives_the_same_parameters) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    TrainedUnits model(rank);
    const auto each = [&](auto action) {
      const at::NoGradGuard no_grad;
      for (const StateRange& range : model.optimizer->state())
        for (const auto& tensor : {range.value, range.exp_avg, range.exp_avg_sq, range.step})
          if (tensor.defined()) action(tensor);
    };
    train(model, 0, 2);
    observe_ranges(rank, model);
    std::vector<at::Tensor> saved;
    each([&](const at::Tensor& tensor) { saved.push_back(tensor.clone()); });
    train(model, 2, 4);
    observe_parameters(rank, model.units, "", " the first time");
    auto next = saved.begin();
    each([&](const at::Tensor& tensor) { tensor.copy_(*next++); });
    train(model, 2, 4);
    observe_parameters(rank, model.units, "", " the second time");
  });
  expect_ranges(run);
  for (const Trained& parameter : kParameters)
    expect_on_all_ranks(run, parameter.name + " the second time",
                        run.at(0, parameter.name + " the first time"));
}

MULTI_RANK_TEST(T5_5_state, an_all_gather_after_a_write_to_the_state_has_the_new_values) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const at::NoGradGuard no_grad;
    TrainedUnits model(rank);
    for (const auto& unit : model.units)
      unit->unshard();
    for (const StateRange& range : observe_ranges(rank, model))
      range.value.fill_(3);
    std::string stale;
    for (const auto& unit : model.units) {
      unit->unshard();
      for (const auto& [name, parameter] : unit->parameters())
        if (!parameter.eq(3).all().item<bool>()) stale += name + " ";
      unit->reshard();
    }
    rank.observe("parameters with the values from before the write", stale);
  });
  expect_ranges(run);
  expect_on_all_ranks(run, "parameters with the values from before the write", "");
}

// Rank 0 writes to its shard as soon as state() has returned. The other ranks read the shard of
// rank 0 late: first they wait, for at most 0.3 s, until rank 0 has written. state() must not
// return on rank 0 before the other ranks have read.
MULTI_RANK_TEST(T5_5_state, state_returns_after_the_other_ranks_have_read_the_shards) {
  const SharedFlag done;
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    const at::NoGradGuard no_grad;
    TrainedUnits model(rank);
    model.units[0]->unshard_async();
    if (rank.rank() != 0) done.wait();
    model.units[0]->unshard();
    const bool old = make_parameters()[0].tensor.equal(model.units[0]->parameters()[0].tensor);
    rank.observe("gathered before the write are the values before it", old);
    model.units[0]->reshard();
    for (const StateRange& range : observe_ranges(rank, model))
      range.value.fill_(3);
    if (rank.rank() == 0) done.set();
  });
  expect_ranges(run);
  expect_on_all_ranks(run, "gathered before the write are the values before it", true);
}

MULTI_RANK_TEST(T5_5_state, state_issues_no_collective) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    TrainedUnits model(rank);
    train(model, 0, 1);
    rank.communicator()->take_log();
    observe_ranges(rank, model);
    rank.observe("calls", take_calls(*rank.communicator()));
  });
  expect_ranges(run);
  expect_on_all_ranks(run, "calls", "");
}

}  // namespace
}  // namespace fsdp
