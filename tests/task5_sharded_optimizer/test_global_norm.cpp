#include <testing/call_text.h>

#include <cmath>
#include <set>

#include "training_on_shards.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE_ON(T5_3_global_norm, 1, 2, 3, 4, 8);

// The cases include gradients of zeros, a gradient of b.bias that is not finite, and a training
// without a limit. clip_grad_norm() scales by 0 if the norm is infinite. If the norm is NaN, the
// factor is NaN, which is not below 1, so nothing is scaled.
MULTI_RANK_TEST(T5_3_global_norm, clipping_issues_one_all_reduce) {
  struct Case {
    std::string name;
    float all, of_b_bias;
    double max_norm;
    std::string norm;
  };
  const std::vector<Case> cases{{"zeros", 0, 0, 1, "0"},
                                {"ones", 1, 1, 1, "finite"},
                                {"ones without a limit", 1, 1, INFINITY, "finite"},
                                {"an infinity", 1, INFINITY, 1, "inf"},
                                {"a NaN", 1, NAN, 1, "nan"}};
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    const auto optimizer = make_sharded_optimizer(units, {{"", adamw()}}, rank.communicator());
    for (const Case& c : cases) {
      optimizer->zero_grad();
      reduce_gradients(units, [&](size_t i) {
        at::Tensor gradient = at::full(kParameters[i].sizes, c.all);
        if (kParameters[i].name == "b.bias") gradient[0] = c.of_b_bias;
        return gradient;
      });
      rank.communicator()->take_log();
      const double norm = optimizer->clip_grad_norm(c.max_norm);
      rank.observe("norm of " + c.name, norm == 0             ? "0"
                                        : std::isfinite(norm) ? "finite"
                                                              : std::to_string(std::abs(norm)));
      rank.observe("calls with " + c.name, take_calls(*rank.communicator()));
      rank.observe("gradients of unit a at most, with " + c.name,
                   units[0]->sharded_gradient().max().item<double>());
    }
  });
  for (const Case& c : cases) {
    expect_on_all_ranks(run, "calls with " + c.name, "all_reduce <norm>; ");
    expect_on_all_ranks(run, "norm of " + c.name, c.norm);
  }
  for (const auto& [name, most] :
       {std::pair{"ones without a limit", 1.0}, {"an infinity", 0.0}, {"a NaN", 1.0}})
    expect_on_rank(run, 0, std::string("gradients of unit a at most, with ") + name, most);
}

// The value of every element of every gradient in these tests. It is so small that the 1e-6 which
// is added to the norm matters. It is a power of two, so norm and factor can be computed by hand,
// and no sum rounds.
constexpr double kElement = 1.0 / (1 << 20);

double norm_of_small_gradients() {
  int64_t elements = 0;
  for (const Trained& parameter : kParameters)
    elements += parameter.trainable ? numel(parameter) : 0;
  return std::sqrt(static_cast<double>(elements) * kElement * kElement);
}

MULTI_RANK_TEST(T5_3_global_norm, clipping_scales_all_gradients_by_one_factor) {
  const double norm = norm_of_small_gradients();
  const std::vector<std::pair<std::string, double>> limits{
      {"half the norm", norm / 2}, {"the norm", norm}, {"more than norm + 1e-6", 2 * norm + 1}};
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    const auto optimizer =
        make_sharded_optimizer(units, {{"bias", adamw()}, {"", adamw()}}, rank.communicator());
    for (const auto& [limit, max_norm] : limits) {
      optimizer->zero_grad();
      reduce_gradients(units, [](size_t i) { return at::full(kParameters[i].sizes, kElement); });
      rank.observe("norm, where max_norm is " + limit, optimizer->clip_grad_norm(max_norm));
      // The different factors by which clipping has multiplied the elements that are not padding.
      std::set<double> factors;
      for (const auto& unit : units) {
        if (!unit->trainable()) continue;
        const at::Tensor gradient = unit->sharded_gradient();
        for (int64_t i = 0; i < gradient.numel(); ++i) {
          const auto value = gradient[i].item<double>();
          if (value != 0) factors.insert(value / kElement);
        }
      }
      if (!factors.empty()) rank.observe("factor, where max_norm is " + limit, factors);
    }
  });
  for (const auto& [limit, max_norm] : limits) {
    expect_on_all_ranks(run, "norm, where max_norm is " + limit, norm);
    const auto factor = static_cast<float>(std::min(1.0, max_norm / (norm + 1e-6)));
    const std::string name = "factor, where max_norm is " + limit;
    // A rank whose shards are only padding has observed no factor.
    for (int r = 0; r < world_size(); ++r)
      if (r == 0 || run.observed(r, name)) expect_on_rank(run, r, name, {double{factor}});
  }
}

MULTI_RANK_TEST(T5_3_global_norm, a_unit_without_a_gradient_adds_nothing_to_the_norm) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    const auto optimizer = make_sharded_optimizer(units, {{"", adamw()}}, rank.communicator());
    rank.communicator()->take_log();
    rank.observe("norm without any gradient", optimizer->clip_grad_norm(1.0));
    std::string calls;
    for (const Call& call : rank.communicator()->take_log())
      calls += call.text() + "; ";
    rank.observe("calls without any gradient", calls);
    reduce_gradients(units, [](size_t i) {
      return at::full(kParameters[i].sizes, belongs(kParameters[i], "b") ? 0.5 : 0.25);
    });
    units[0]->clear_sharded_gradient();
    units[2]->clear_sharded_gradient();
    rank.observe("norm of unit b alone", optimizer->clip_grad_norm(0.25));
  });
  double elements = 0;
  for (const Trained& parameter : kParameters)
    if (belongs(parameter, "b")) elements += static_cast<double>(numel(parameter));
  expect_on_all_ranks(run, "calls without any gradient",
                      "all_reduce <norm> (20 x double, 160 B); ");
  expect_on_all_ranks(run, "norm without any gradient", 0.0);
  expect_on_all_ranks(run, "norm of unit b alone", std::sqrt(elements / 4));
}

MULTI_RANK_TEST(T5_3_global_norm, a_unit_frozen_in_an_earlier_step_adds_nothing_to_the_norm) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    const auto optimizer = make_sharded_optimizer(units, {{"", adamw()}}, rank.communicator());
    const auto reduce = [&] {
      reduce_gradients(units, [](size_t i) {
        return at::full(kParameters[i].sizes, belongs(kParameters[i], "b") ? 0.5 : 0.25);
      });
    };
    reduce();
    optimizer->clip_grad_norm(1e9);
    for (const size_t frozen : {0, 2})
      for (const auto& [name, parameter] : units[frozen]->parameters())
        at::Tensor(parameter).set_requires_grad(false);
    for (const std::string step : {"first", "second"}) {
      optimizer->zero_grad();
      reduce();
      rank.observe("norm of unit b alone in the " + step + " step after",
                   optimizer->clip_grad_norm(1e9));
    }
  });
  double elements = 0;
  for (const Trained& parameter : kParameters)
    if (belongs(parameter, "b")) elements += static_cast<double>(numel(parameter));
  for (const std::string step : {"first", "second"})
    expect_on_all_ranks(run, "norm of unit b alone in the " + step + " step after",
                        std::sqrt(elements / 4));
}

MULTI_RANK_TEST(T5_3_global_norm, clipping_changes_no_gradient_if_the_norm_is_below_max_norm) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    const auto optimizer = make_sharded_optimizer(units, {{"", adamw()}}, rank.communicator());
    reduce_gradients(units, 0);
    std::vector<at::Tensor> before;
    for (size_t u = 0; u < 3; ++u)
      before.push_back(units[u]->sharded_gradient().clone());
    rank.observe("norm", optimizer->clip_grad_norm(1e9));
    for (size_t u = 0; u < 3; ++u)
      rank.observe("the gradient of unit " + kUnits[u] + " is as before",
                   before[u].equal(units[u]->sharded_gradient()));
  });
  EXPECT_GT(run.at(0, "norm").get<double>(), 1) << "the norm of gradients that are not zero";
  for (size_t u = 0; u < 3; ++u)
    expect_on_all_ranks(run, "the gradient of unit " + kUnits[u] + " is as before", true);
}

// The square root hides about half of the errors in the last bit, so one sample would not be
// enough.
constexpr int64_t kSamples = 16;

MULTI_RANK_TEST(T5_3_global_norm,
                the_global_norm_has_equal_bits_for_other_numbers_of_ranks_and_orders_of_units) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    const std::vector<std::shared_ptr<FlatParameter>> reversed(units.rbegin(), units.rend());
    for (const auto& order : {units, reversed}) {
      const auto optimizer =
          make_sharded_optimizer(order, groups_that_differ(), rank.communicator());
      std::vector<double> norms;
      for (int64_t sample = 0; sample < kSamples; ++sample) {
        optimizer->zero_grad();
        reduce_gradients(units, [=](size_t i) { return gradient_of_many_sizes(i, sample); });
        norms.push_back(optimizer->clip_grad_norm(1e9));
      }
      rank.observe(order == units ? "norms" : "norms, where the units are reversed", norms);
    }
  });
  const RankRun expected = run_oracle([](TestRank& rank) {
    std::vector<double> norms;
    for (int64_t sample = 0; sample < kSamples; ++sample)
      norms.push_back(norm_of(gradients_of_many_sizes(sample)));
    rank.observe("norms", norms);
  });
  expect_on_all_ranks(run, "norms", expected.at(0, "norms"));
  expect_on_all_ranks(run, "norms, where the units are reversed", expected.at(0, "norms"));
}

MULTI_RANK_TEST(T5_3_global_norm, clipping_equals_that_of_one_process_bit_by_bit) {
  expect_as_one_process(world_size(), {{groups_that_differ(), 0.5, "limit of 0.5: "},
                                       {groups_that_differ(), 2, "limit of 2: "}});
}

}  // namespace
}  // namespace fsdp
