#include <limits>

#include "training_on_shards.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(T5_2_padding);

// Writes `value` into the padding of this rank's shard: the elements that belong to no parameter.
void fill_padding(const FlatParameter& unit, float value) {
  at::Tensor is_padding = at::ones({unit.layout().padded_numel}, at::kBool);
  for (size_t i = 0; i < unit.parameters().size(); ++i) {
    is_padding.narrow(0, unit.layout().offsets[i], unit.parameters()[i].tensor.numel())
        .fill_(false);
  }
  unit.shard().masked_fill_(is_padding.narrow(0, unit.shard_offset(), unit.shard_numel()), value);
}

MULTI_RANK_TEST(T5_2_padding, the_padding_of_a_shard_affects_neither_the_norm_nor_a_parameter) {
  const auto train = [&](float padding) {
    return run_ranks(world_size(), [padding](TestRank& rank) {
      const auto units = make_units(rank, make_parameters());
      const auto optimizer =
          make_sharded_optimizer(units, groups_that_differ(), rank.communicator());
      for (int step = 0; step < 3; ++step) {
        for (const auto& unit : units)
          fill_padding(*unit, padding);
        reduce_gradients(units, step);
        rank.observe(norm_of_step(step), optimizer->clip_grad_norm(0.5));
        optimizer->step();
        optimizer->zero_grad();
      }
      observe_parameters(rank, units);
      observe_old_values(rank, units);
    });
  };
  const RankRun zero = train(0);
  const RankRun nan = train(std::numeric_limits<float>::quiet_NaN());
  expect_no_old_values(zero);
  EXPECT_GT(zero.at(0, norm_of_step(0)).get<double>(), 0.5) << "the norm that is clipped to 0.5";
  std::vector<std::string> names{norm_of_step(0), norm_of_step(1), norm_of_step(2)};
  for (const Trained& parameter : kParameters)
    names.push_back(parameter.name);
  for (const std::string& name : names)
    expect_on_all_ranks(nan, name, zero.at(0, name));
}

}  // namespace
}  // namespace fsdp
