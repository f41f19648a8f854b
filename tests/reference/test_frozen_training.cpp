#include <strategies/build_model.h>

#include <common/expect_text.h>
#include <common/in_a_process.h>

#include "same_bits.h"

namespace fsdp {
namespace {

constexpr int kFrozenParts = 4;

// Returns a configuration that trains only the biases and the norms.
TrainConfig with_frozen_matrices(const Arranged& how, int64_t steps = 3) {
  TrainConfig config = config_of(how, kFrozenParts, steps);
  config.model.freeze = R"((wte|wpe|c_attn|c_proj|c_fc)\.weight)";
  return config;
}

TEST(FrozenTraining, a_run_with_frozen_parameters_ends_with_the_same_bits_for_every_mode) {
  const SameBits same_bits(with_frozen_matrices({"single", 1}));
  for (const Arranged& how :
       std::vector<Arranged>{{"ddp", 2}, {"fsdp", 1}, {"fsdp", 2}, {"fsdp", 4}, {"fsdp", 4, 2}})
    same_bits.expect_of(with_frozen_matrices(how), named(how));
  for (const std::string wrap : {"none", "type:MLP"}) {
    TrainConfig config = with_frozen_matrices({"fsdp", 2});
    config.sharding.wrap = wrap;
    same_bits.expect_of(config, "--wrap " + wrap);
  }
  TrainConfig last = with_frozen_matrices({"fsdp", 2});
  last.training.reduce_gradients = ReduceGradients::last;
  same_bits.expect_of(last, "reduced once");
}

TEST(FrozenTraining, the_option_freeze_is_refused_if_it_freezes_nothing_or_everything) {
  in_a_process([] {
    TrainConfig config = config_of({"single", 1}, kFrozenParts, 1);
    config.model.freeze = "transformer";
    EXPECT_CONTAINS(
        error_of([&] { build_model(config); }),
        "--freeze transformer: matches no parameter; their names are wte.weight, wpe.weight, ");
    config.model.freeze = ".";
    EXPECT_CONTAINS(error_of([&] { build_model(config); }), "none is left to train");
  });
}

TEST(FrozenTraining, a_run_prints_how_many_parameters_are_trained) {
  const auto head_of = [](const TrainConfig& config) {
    testing::internal::CaptureStdout();
    EXPECT_EQ(run_training(config, {make_fsdp_strategy, shard_layout, checkpoint_blocks,
                                    construct_on_meta, make_ddp_reduction}),
              0);
    return testing::internal::GetCapturedStdout();
  };
  TrainConfig config = with_frozen_matrices({"fsdp", 2}, 1);
  const std::string frozen = head_of(config);
  EXPECT_CONTAINS(frozen, "\n1,378 of 44,288 parameters are trained, ");
  config.model.freeze = "";
  EXPECT_CONTAINS(head_of(config), "\n44,288 parameters, ");
}

// The frozen matrices are more than nine tenths of the model.
TEST(FrozenTraining, gradients_and_reduce_scatters_have_no_bytes_of_frozen_parameters) {
  const TemporaryFolder folder;
  const auto all = train(config_of({"fsdp", 2}, 2, 2), folder);
  TrainConfig frozen = with_frozen_matrices({"fsdp", 2}, 2);
  frozen.training.microbatches = 2;
  const auto run = train(frozen, folder);
  const auto trained = [](const nlohmann::json& line) {
    return line["comm_bytes"]["reduce_scatter"].get<int64_t>();
  };
  const auto gradients = [](const nlohmann::json& line) {
    const auto& peaks = line["live_bytes"]["backward"];
    return peaks["gradients"]["measured"].get<int64_t>() +
           peaks["sharded_gradients"]["measured"].get<int64_t>();
  };
  EXPECT_LT(trained(run), trained(all) / 10);
  EXPECT_LT(gradients(run), gradients(all) / 5);
  // A unit with frozen parameters is divided into two units, which together have more padding than
  // one. The additional padding is less than 16 elements for each of 2 ranks, in 3 blocks and the
  // root, in forward and in backward. A rank receives half of it.
  EXPECT_LT(run["comm_bytes"]["all_gather"],
            all["comm_bytes"]["all_gather"].get<int64_t>() + 4 * 32 * 4 * 2 / 2);
}

}  // namespace
}  // namespace fsdp
