#include <testing/call_text.h>
#include <torch/nn/utils/clip_grad.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "training_on_shards.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(T5_4_p_norm);

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
const std::vector<double> kTypes{0.5, 1, 2, 2.5, 3, kInfinity};

std::string named(double norm_type) {
  std::ostringstream text;
  text << "norm_type " << norm_type;
  return text.str();
}

// The cases of the tests. Each has a text that describes the gradients, and the value of the first
// element of the gradient of b.bias.
const std::vector<std::pair<std::string, float>> kGradients{
    {"no gradient", 0.F}, {"zeros", 0.F}, {"ones", 1.F}, {"an infinity", INFINITY}, {"a NaN", NAN}};

void reduce_in_case(const Units& units, const std::string& gradients, float of_b_bias) {
  if (gradients == "no gradient") return;
  reduce_gradients(units, [&](size_t i) {
    at::Tensor gradient = at::full(kParameters[i].sizes, gradients == "zeros" ? 0.0 : 1.0);
    if (kParameters[i].name == "b.bias") gradient[0] = of_b_bias;
    return gradient;
  });
}

// Returns PyTorch's norm in fp64, where it hardly rounds. PyTorch rejects an empty gradient if
// norm_type is infinite.
double norm_of_torch(const std::vector<at::Tensor>& gradients, double norm_type) {
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& gradient : gradients) {
    if (gradient.numel() == 0) continue;
    parameters.push_back(at::zeros_like(gradient, at::kDouble));
    parameters.back().mutable_grad() = gradient.to(at::kDouble);
  }
  return torch::nn::utils::clip_grad_norm_(parameters, 1, norm_type);
}

MULTI_RANK_TEST(T5_4_p_norm, the_global_p_norm_is_that_of_torch) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    TrainedUnits model(rank);
    reduce_gradients(model.units, [](size_t i) { return gradient_of_many_sizes(i, 0); });
    for (const double type : kTypes) {
      const double norm = model.optimizer->clip_grad_norm(1e9, type);
      const double expected = norm_of_torch(gradients_of_many_sizes(0), type);
      rank.observe(named(type), norm);
      rank.observe(named(type) + ": as torch's", std::abs(norm - expected) <= 1e-6 * expected);
    }
  });
  for (const double type : kTypes) {
    expect_on_all_ranks(run, named(type) + ": as torch's", true);
    expect_same_on_all_ranks(run, named(type));
  }
}

MULTI_RANK_TEST(T5_4_p_norm,
                the_global_p_norm_has_equal_bits_for_other_numbers_of_ranks_and_orders_of_units) {
  constexpr int64_t kSamples = 8;
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    TrainedUnits model(rank);
    const auto reversed = make_sharded_optimizer({model.units.rbegin(), model.units.rend()},
                                                 groups_that_differ(), rank.communicator());
    for (const double type : kTypes) {
      std::vector<double> norms, of_reversed;
      for (int64_t sample = 0; sample < kSamples; ++sample) {
        reversed->zero_grad();
        reduce_gradients(model.units, [=](size_t i) { return gradient_of_many_sizes(i, sample); });
        norms.push_back(model.optimizer->clip_grad_norm(1e9, type));
        of_reversed.push_back(reversed->clip_grad_norm(1e9, type));
      }
      rank.observe(named(type), norms);
      rank.observe(named(type) + ", where the units are reversed", of_reversed);
    }
  });
  const RankRun expected = run_oracle([](TestRank& rank) {
    for (const double type : kTypes) {
      std::vector<double> norms;
      for (int64_t sample = 0; sample < kSamples; ++sample)
        norms.push_back(norm_of(gradients_of_many_sizes(sample), type));
      rank.observe(named(type), norms);
    }
  });
  for (const double type : kTypes) {
    expect_on_all_ranks(run, named(type), expected.at(0, named(type)));
    expect_on_all_ranks(run, named(type) + ", where the units are reversed",
                        expected.at(0, named(type)));
  }
}

MULTI_RANK_TEST(T5_4_p_norm, clipping_by_a_p_norm_equals_that_of_one_process_bit_by_bit) {
  std::vector<Training> trainings;
  for (const double type : {1.0, 2.5, kInfinity})
    trainings.push_back({groups_that_differ(), 0.5, named(type) + ": ", 3, type});
  expect_as_one_process(world_size(), trainings);
}

// The collectives depend neither on the gradients nor on the limit. If a rank did not issue a call,
// the other ranks would wait for it.
MULTI_RANK_TEST(T5_4_p_norm, the_collectives_of_clipping_depend_only_on_the_norm_type) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    TrainedUnits model(rank);
    for (const auto& [gradients, of_b_bias] : kGradients) {
      for (const double type : kTypes) {
        for (const double max_norm : {1.0, kInfinity}) {
          model.optimizer->zero_grad();
          reduce_in_case(model.units, gradients, of_b_bias);
          rank.communicator()->take_log();
          const double norm = model.optimizer->clip_grad_norm(max_norm, type);
          std::string calls;
          for (const Call& call : rank.communicator()->take_log())
            calls += call.text() + "; ";
          const std::string limit = max_norm == 1 ? "" : ", no limit";
          const std::string name = named(type) + ", " + gradients + limit;
          if (norm == 0) rank.observe(name + ": norm of nothing", norm);
          rank.observe(name + ": calls", calls);
        }
      }
    }
  });
  const std::string numbers = std::to_string(world_size()) + " x double, ";
  const std::string gather =
      "all_gather <norm> (" + numbers + std::to_string(8 * world_size()) + " B); ";
  const std::string reduce = "all_reduce <norm> (20 x double, 160 B); ";
  for (const double type : kTypes) {
    const std::string calls = (type == 2 ? "" : gather) + (type == kInfinity ? "" : reduce);
    for (const auto& [gradients, of_b_bias] : kGradients)
      for (const char* limit : {"", ", no limit"})
        expect_on_all_ranks(run, named(type) + ", " + gradients + limit + ": calls", calls);
    for (const char* gradients : {"no gradient", "zeros"})
      expect_on_all_ranks(run, named(type) + ", " + gradients + ": norm of nothing", 0.0);
  }
}

MULTI_RANK_TEST(T5_4_p_norm, a_nonfinite_gradient_makes_the_norm_nonfinite_on_every_rank) {
  const std::vector<std::pair<std::string, float>> values{
      {"infinity", -std::numeric_limits<float>::infinity()},
      {"NaN", std::numeric_limits<float>::quiet_NaN()}};
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    TrainedUnits model(rank);
    for (const auto& [name, value] : values) {
      for (const double type : kTypes) {
        model.optimizer->zero_grad();
        reduce_gradients(model.units, [value = value](size_t i) {
          at::Tensor gradient = at::ones(kParameters[i].sizes);
          if (kParameters[i].name == "b.bias") gradient[0] = value;
          return gradient;
        });
        const double norm = model.optimizer->clip_grad_norm(1, type);
        rank.observe(named(type) + ", " + name, std::to_string(std::abs(norm)));
      }
    }
  });
  for (const double type : kTypes) {
    expect_on_all_ranks(run, named(type) + ", infinity", "inf");
    expect_on_all_ranks(run, named(type) + ", NaN", "nan");
  }
}

MULTI_RANK_TEST(T5_4_p_norm, a_norm_type_that_is_not_above_zero_throws_before_any_collective) {
  const std::vector<double> wrong{0, -1, -kInfinity, kNaN};
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    TrainedUnits model(rank);
    reduce_gradients(model.units, 0);
    rank.communicator()->take_log();
    std::string refused;
    for (const double type : wrong) {
      try {
        model.optimizer->clip_grad_norm(1, type);
      } catch (const std::invalid_argument&) {
        refused += named(type) + "; ";
      }
    }
    rank.observe("refused", refused);
    rank.observe("calls", take_calls(*rank.communicator()));
  });
  std::string all;
  for (const double type : wrong)
    all += named(type) + "; ";
  expect_on_all_ranks(run, "refused", all);
  expect_on_all_ranks(run, "calls", "");
}

}  // namespace
}  // namespace fsdp
