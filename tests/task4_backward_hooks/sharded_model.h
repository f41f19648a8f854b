#pragma once

#include <backward_hooks.h>
#include <comm/tree_sum.h>
#include <task3_forward_hooks/sharded_toy.h>
#include <testing/expected_shards.h>

#include <functional>
#include <memory>
#include <regex>
#include <string>
#include <vector>

// The tests of backward use this sharded ToyModel and these losses, and compare the gradients with
// those of one process.
namespace fsdp {

// Returns a ToyModel of `layers` blocks. The parameters of the block with the index `frozen`
// require no gradient. If `frozen` is -1, all parameters require gradients.
inline std::shared_ptr<ToyModel> toy_model(int layers, int frozen = -1) {
  auto model = std::make_shared<ToyModel>(layers);
  if (frozen >= 0) {
    for (auto& p : model->blocks[static_cast<size_t>(frozen)]->parameters())
      p.set_requires_grad(false);
  }
  return model;
}

// A block that adds its bias. As in an embedding, its backward reads no parameter.
struct ShiftBlock : ToyBlock {
  using ToyBlock::ToyBlock;
  at::Tensor forward(at::Tensor x) override { return x + bias; }
  bool reads_parameters_in_backward() const override { return false; }
};

// Returns a ToyModel of `layers` blocks, of which block 1 is a ShiftBlock.
inline std::shared_ptr<ToyModel> shifting_toy(int layers) {
  auto model = std::make_shared<ToyModel>(layers);
  model->blocks[1] = std::make_shared<ShiftBlock>(7, 101);
  return model;
}

// Returns a model in which all parameters are frozen. Its first block gets `input` in place of its
// usual input.
inline std::shared_ptr<ToyModel> frozen_model(const at::Tensor& input) {
  auto model = toy_model(3);
  for (auto& parameter : model->parameters())
    parameter.set_requires_grad(false);
  model->blocks[0]->register_forward_pre_hook([=](Module&, const at::Tensor&) { return input; });
  return model;
}

inline at::Tensor trainable_input(int rank) {
  return (at::arange(35, at::kFloat).view({5, 7}) / (7 + rank)).requires_grad_(true);
}

inline const std::string kHoldNan =
    "units whose gradient holds nan, as memory that nobody has written yet does";

// A ToyModel whose root and blocks are units, with the hooks of tasks 3 and 4.
struct Sharded : ShardedToy {
  explicit Sharded(TestRank& rank, int layers = 3, int frozen_block = -1)
      : Sharded(rank, toy_model(layers, frozen_block)) {}
  Sharded(TestRank& rank, std::shared_ptr<ToyModel> toy, bool reshard_after_forward = true)
      : ShardedToy(rank, std::move(toy), reshard_after_forward), hooks(make_backward_hooks()) {
    for (size_t i = 0; i < units.size(); ++i)
      hooks->add(*modules[i], units[i]);
  }

  void observe_gradients(TestRank& rank, const std::string& prefix = "") const {
    for (const auto& unit : units)
      observe_gradient(rank, *unit, prefix);
  }

  // Observes the gradients of the blocks, whose reductions are issued before the end of the pass.
  // Waits for the last reduction.
  void observe_gradients_of_blocks(TestRank& rank) const {
    for (size_t i = 1; i < units.size(); ++i) {
      units[i]->wait_for_reduction();
      observe_gradient(rank, *units[i], "");
    }
  }

  // Observes the units of which a gradient, reduced or not, holds NaN. A gradient holds NaN if it
  // was computed before the unit's parameters had their gathered values.
  void observe_units_whose_gradient_holds_nan(TestRank& rank) const {
    const auto holds_nan = [](const at::Tensor& gradient) {
      return gradient.defined() && gradient.isnan().any().item<bool>();
    };
    std::string names;
    for (const auto& unit : units) {
      bool found = holds_nan(unit->sharded_gradient());
      for (const auto& parameter : unit->parameters())
        found = found || holds_nan(parameter.tensor.grad());
      if (found) names += unit->unit() + " ";
    }
    rank.observe(kHoldNan, names);
  }

  void drop_gradients() const {
    for (const auto& unit : units)
      unit->clear_sharded_gradient();
  }

  // Returns the names of the units whose reduction has been waited for, in the order of `units`:
  // "blocks1 blocks2 ".
  std::string reduced() const {
    std::string names;
    for (const auto& unit : units)
      names += unit->sharded_gradient().defined() ? unit->unit() + " " : "";
    return names;
  }

  std::shared_ptr<BackwardHooks> hooks;

 private:
  static void observe_gradient(TestRank& rank, const FlatParameter& unit,
                               const std::string& prefix) {
    if (unit.sharded_gradient().defined())
      rank.observe(prefix + unit.unit(), unit.sharded_gradient(), places_of_shard(unit));
    else
      rank.observe(prefix + unit.unit(), "no sharded gradient");
  }
};

// Each time the gradient of a block's output arrives, appends the result of look() and "| " to the
// returned text. look() runs after the backward hooks of the block's unit.
inline std::shared_ptr<std::string> look_at_arrivals(const Sharded& sharded,
                                                     const std::function<std::string()>& look) {
  auto seen = std::make_shared<std::string>();
  for (const auto& block : sharded.model->blocks)
    block->register_full_backward_pre_hook([=](Module&) { *seen += look() + "| "; });
  return seen;
}

// A function that returns the loss that rank `rank` computes. The tokens differ between ranks.
using Loss = std::function<at::Tensor(ToyModel& model, int rank)>;

inline at::Tensor plain_loss(ToyModel& model, int rank) {
  return model(toy_tokens(rank)).square().sum();
}

// Returns the mean gradients that one process computes, for each unit of `model` and each of its
// parameters. Runs one backward pass over the loss of each rank, adds the gradients as a tree, and
// divides the sum by W. Before the call, no parameter may have a .grad.
inline std::vector<std::vector<at::Tensor>> mean_gradients(
    ToyModel& model, int world_size, const std::function<at::Tensor(int rank)>& loss) {
  std::vector<std::vector<std::vector<at::Tensor>>> of_ranks;
  for (int r = 0; r < world_size; ++r) {
    loss(r).backward();
    of_ranks.resize(model.blocks.size() + 1);
    for (size_t u = 0; auto& unit : toy_units(model)) {
      auto& of_unit = of_ranks[u++];
      of_unit.resize(unit.parameters.size());
      for (size_t i = 0; i < unit.parameters.size(); ++i) {
        auto& parameter = unit.parameters[i].tensor;
        at::Tensor gradient = parameter.grad();
        if (!gradient.defined()) gradient = at::zeros_like(parameter);
        of_unit[i].push_back(gradient);
        parameter.mutable_grad().reset();
      }
    }
  }
  std::vector<std::vector<at::Tensor>> means;
  for (const auto& unit : of_ranks) {
    auto& of_unit = means.emplace_back();
    for (const auto& gradients : unit)
      of_unit.push_back(sum_as_tree(gradients) / world_size);
  }
  return means;
}

// Observes, for each rank, the sharded gradients that the ranks should have if the mean gradients
// of the units are `means`. The names of the observations are such as "PREFIXblocks0 RANK".
inline void observe_means(TestRank& rank, ToyModel& model,
                          const std::vector<std::vector<at::Tensor>>& means, int world_size,
                          const std::string& prefix = "") {
  for (size_t u = 0; const auto& unit : toy_units(model))
    observe_expected_shards(rank, prefix + unit.name, means[u++], world_size);
}

using MakeToy = std::function<std::shared_ptr<ToyModel>()>;
inline const MakeToy kThreeBlocks = [] { return toy_model(3); };

inline RankRun oracle(int world_size, const Loss& loss, const MakeToy& make = kThreeBlocks) {
  return run_oracle([&](TestRank& rank) {
    const auto model = make();
    const auto means = mean_gradients(*model, world_size, [&](int r) { return loss(*model, r); });
    observe_means(rank, *model, means, world_size);
  });
}

// Compares the gradients that observe_gradients() observed on all ranks with those of
// observe_means().
inline void expect_gradients(const RankRun& run, const RankRun& expected,
                             const std::string& prefix = "") {
  for (const std::string unit : {"root", "blocks0", "blocks1", "blocks2"})
    expect_shards(run, expected, prefix + unit);
}

// Compares the gradients that observe_gradients_of_blocks() observed with those of one process.
inline void expect_gradients_of_blocks(const RankRun& run, const Loss& loss,
                                       const MakeToy& make = kThreeBlocks) {
  const RankRun expected = oracle(run.world_size(), loss, make);
  for (const std::string unit : {"blocks0", "blocks1", "blocks2"})
    expect_shards(run, expected, unit);
}

inline void expect_gradients_of_one_process(const RankRun& run, const Loss& loss,
                                            const MakeToy& make = kThreeBlocks) {
  expect_gradients(run, oracle(run.world_size(), loss, make));
}

// The collectives that a forward issues, and those that a backward pass issues, if every unit is
// used once.
inline constexpr const char* kForward =
    "all_gather root; all_gather blocks0; all_gather blocks1; all_gather blocks2; ";
inline constexpr const char* kBackward =
    "all_gather blocks2; reduce_scatter blocks2; all_gather blocks1; reduce_scatter blocks1; "
    "all_gather blocks0; reduce_scatter blocks0; reduce_scatter root; ";

// Returns a text with the units of the calls of `operation`, in the order of the list `calls`:
// "blocks2; root; " if `calls` is "reduce_scatter blocks2; reduce_scatter root; ".
inline std::string units_of(const std::string& operation, const std::string& calls) {
  std::string result;
  for (size_t at = 0; at < calls.size();) {
    const size_t end = calls.find("; ", at) + 2;
    const std::string call = calls.substr(at, end - at);
    if (call.starts_with(operation)) result += call.substr(operation.size() + 1);
    at = end;
  }
  return result;
}
// Returns the text `calls` without the reduce-scatter of the root's unit, which is issued at the
// end of the backward pass. The text has calls, such as "reduce_scatter root; ", or only the units
// of calls, such as "root; ".
inline std::string without_root(const std::string& calls) {
  return std::regex_replace(calls, std::regex("(reduce_scatter )?root; "), "");
}
inline std::string reductions(const std::string& calls) {
  return units_of("reduce_scatter", calls);
}

inline const Loss kBlockUnused = [](ToyModel& model, int rank) {
  model.order = {0, 2};
  return plain_loss(model, rank);
};

inline const Loss kBlockUsedTwice = [](ToyModel& model, int rank) {
  model.order = {0, 1, 0, 2};
  return plain_loss(model, rank);
};

inline const Loss kOutputDropped = [](ToyModel& model, int rank) {
  (*model.blocks[1])(at::ones({1, 7}).requires_grad_(true));
  return plain_loss(model, rank);
};

// Runs a backward pass that breaks off: a hook throws when the gradient of `place` arrives, which
// is a parameter of the model or "loss". Observes what the pass throws, for expect_broken_off().
inline void break_off_at(const std::string& place, const Sharded& sharded, TestRank& rank,
                         at::Tensor loss = {}) {
  if (!loss.defined()) loss = plain_loss(*sharded.model, rank.rank());
  const auto fail = [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("no"); };
  at::Tensor tensor = place == "loss" ? loss : sharded.model->named_parameters()[place];
  const auto hook = tensor.register_hook(fail);
  rank.observe("what the pass throws that breaks off", thrown_by([&] { loss.backward(); }));
  tensor.remove_hook(hook);
}

inline void expect_broken_off(const RankRun& run) {
  expect_error(run, "what the pass throws that breaks off", {"std::runtime_error", "no"});
}

}  // namespace fsdp
