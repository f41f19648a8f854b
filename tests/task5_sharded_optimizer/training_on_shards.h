#pragma once

#include <comm/tree_sum.h>
#include <optim/p_norm.h>
#include <testing/expected_shards.h>

#include <algorithm>
#include <cmath>
#include <deque>

#include "trained_units.h"

// The functions of this file train on the shards of W ranks, train in one process that computes
// what the ranks compute together, and compare the results.
namespace fsdp {

struct Training {
  std::vector<ParameterGroup> groups;
  double max_norm{};     // gradients are clipped to this norm; 0: they are not clipped
  std::string prefix{};  // a text with which the names of all observations of this training begin
  int steps{8};
  double norm_type{2};
  // The parameters are compared from this step on. In earlier steps, a wrong option of a group may
  // change only a rounding.
  int compared_from{};
};

inline std::string norm_of_step(int step) {
  return "norm over all ranks in step " + std::to_string(step);
}

inline std::string after(int step) {
  return " after step " + std::to_string(step);
}

// Returns the mean over ranks of W equal gradients. It is exact if W is a power of two. For other
// W, the sum and the division can round, so this function computes them as the ranks do.
inline at::Tensor mean_of_equal(const at::Tensor& gradient, int world_size) {
  return sum_as_tree(std::vector(static_cast<size_t>(world_size), gradient)) / world_size;
}

// Returns the norm that one process computes of all elements of `gradients` together.
inline double norm_of(const std::vector<at::Tensor>& gradients, double norm_type = 2) {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& gradient : gradients)
    flat.push_back(gradient.flatten());
  return p_norm({at::cat(flat)}, norm_type);
}

// Returns numbers of very different magnitudes, with 21 bits each. If all ranks have the same
// numbers, the mean over ranks is exact for every W of these tests. But a sum of squares, or of
// other powers, rounds in fp64.
inline at::Tensor gradient_of_many_sizes(size_t i, int64_t sample) {
  const at::Tensor gradient = at::empty(kParameters[i].sizes);
  for (int64_t k = 0; k < gradient.numel(); ++k) {
    const int64_t place = k + 100 * static_cast<int64_t>(i) + 1000 * sample;
    const int64_t mantissa = 7919 * (k + 100) * place % 2097143;
    gradient.data_ptr<float>()[k] =
        std::ldexp(static_cast<float>(mantissa), -20 - static_cast<int>(k % 30));
  }
  return gradient;
}

// Returns gradient_of_many_sizes() for each trainable parameter.
inline std::vector<at::Tensor> gradients_of_many_sizes(int64_t sample) {
  std::vector<at::Tensor> gradients;
  for (size_t i = 0; i < kParameters.size(); ++i)
    if (kParameters[i].trainable) gradients.push_back(gradient_of_many_sizes(i, sample));
  return gradients;
}

// The training in one process. Each parameter has storage of a multiple of 16 elements, as
// update_rule.h requires. Groups are updated one after the other.
struct OneProcess {
  explicit OneProcess(const std::vector<ParameterGroup>& groups) : pieces(groups.size()) {
    for (const auto& [name, tensor] : make_parameters()) {
      const at::Tensor value = at::zeros({round_up(tensor.numel(), kAlignment)});
      const at::Tensor gradient = at::zeros_like(value);
      if (tensor.requires_grad() && tensor.numel() > 0)
        pieces[group_of(name, groups)].push_back({value, gradient, {}, {}, {}});
      values.push_back(value.narrow(0, 0, tensor.numel()).view(tensor.sizes()));
      gradients.push_back(gradient.narrow(0, 0, tensor.numel()).view(tensor.sizes()));
      values.back().copy_(tensor.detach());
    }
  }
  std::vector<std::vector<Piece>> pieces;  // pieces[i] has the pieces of parameter group i
  // The value and the gradient of each parameter of kParameters, without padding. Those of a
  // trainable parameter are views of the tensors in `pieces`.
  std::vector<at::Tensor> values, gradients;
};

inline void train_in_one_process(TestRank& rank, int world_size, const Training& training) {
  at::NoGradGuard no_grad;
  OneProcess model(training.groups);
  for (int step = 0; step < training.steps; ++step) {
    for (size_t i = 0; i < kParameters.size(); ++i)
      if (kParameters[i].trainable)
        model.gradients[i].copy_(mean_of_equal(gradient(i, step), world_size));
    if (training.max_norm > 0) {
      const double norm = norm_of(model.gradients, training.norm_type);
      for (const at::Tensor& g : model.gradients)
        g.mul_(std::min(1.0, training.max_norm / (norm + 1e-6)));
      rank.observe(training.prefix + norm_of_step(step), norm);
    }
    for (size_t group = 0; group < training.groups.size(); ++group)
      update(training.groups[group].options, model.pieces[group]);
    for (size_t i = 0; i < kParameters.size(); ++i)
      rank.observe(training.prefix + kParameters[i].name + after(step), model.values[i]);
  }
}

// Gathers every parameter and observes it, so that the report of a wrong element names the rank
// that owns it.
inline void observe_parameters(TestRank& rank, const Units& units, const std::string& prefix = "",
                               const std::string& suffix = "") {
  for (const auto& unit : units) {
    unit->unshard();
    for (size_t i = 0; i < unit->parameters().size(); ++i) {
      Places places = places_of_shard(*unit);
      places.begin = unit->layout().offsets[i];
      const auto& [name, parameter] = unit->parameters()[i];
      rank.observe(prefix + name + suffix, parameter.detach(), places);
    }
    unit->reshard();
  }
}

struct OnShards : TrainedUnits {
  OnShards(TestRank& rank, const Training& training)
      : TrainedUnits(rank, training.groups), training(training) {}

  void step(TestRank& rank, int step) {
    reduce_gradients(units, step);
    if (training.max_norm > 0) {
      rank.observe(training.prefix + norm_of_step(step),
                   training.norm_type == 2
                       ? optimizer->clip_grad_norm(training.max_norm)
                       : optimizer->clip_grad_norm(training.max_norm, training.norm_type));
    }
    optimizer->step();
    optimizer->zero_grad();
    observe_parameters(rank, units, training.prefix, after(step));
  }

  Training training;
};

// Trains on the ranks and in one process, and compares first the norms, then the parameters after
// each step. On the ranks, all trainings run at the same time, step by step.
inline void expect_as_one_process(int world_size, const std::vector<Training>& trainings) {
  const RankRun expected = run_oracle([&](TestRank& rank) {
    for (const Training& training : trainings)
      train_in_one_process(rank, world_size, training);
  });
  const RankRun run = run_ranks(world_size, [&](TestRank& rank) {
    std::deque<OnShards> models;  // a deque, because an optimizer cannot be copied
    for (const Training& training : trainings)
      models.emplace_back(rank, training);
    for (int step = 0; step < trainings[0].steps; ++step)
      for (OnShards& model : models)
        model.step(rank, step);
  });
  for (const Training& training : trainings) {
    std::vector<std::string> names;
    for (int step = 0; training.max_norm > 0 && step < training.steps; ++step)
      names.push_back(norm_of_step(step));
    for (int step = training.compared_from; step < training.steps; ++step)
      for (const Trained& parameter : kParameters)
        names.push_back(parameter.name + after(step));
    for (const std::string& name : names)
      expect_on_all_ranks(run, training.prefix + name, expected.at(0, training.prefix + name));
  }
}

}  // namespace fsdp
