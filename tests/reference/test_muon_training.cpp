#include "same_bits.h"

namespace fsdp {
namespace {

constexpr int kMuonParts = 8;

TrainConfig with_muon(const Arranged& how, int64_t steps = 3) {
  TrainConfig config = config_of(how, kMuonParts, steps);
  config.optimizer.kind = OptimizerOptions::Kind::muon;
  config.optimizer.adamw = "bias$|ln|wte|wpe";
  return config;
}

TEST(MuonTraining, a_run_with_muon_gives_equal_bits_and_uses_the_predicted_bytes_in_every_mode) {
  const SameBits same_bits(with_muon({"single", 1}));
  for (const Arranged& how : std::vector<Arranged>{{"ddp", 2},
                                                   {"fsdp", 1},
                                                   {"fsdp", 2},
                                                   {"fsdp", 4},
                                                   {"fsdp", 8},
                                                   {"fsdp", 4, 2},
                                                   {"fsdp", 2, 1}})
    same_bits.expect_of(with_muon(how), named(how));
  TrainConfig one_unit = with_muon({"fsdp", 4});
  one_unit.sharding.wrap = "none";
  same_bits.expect_of(one_unit, "one unit, so that the embedding is gathered too");
  same_bits.expect_of_resumed(with_muon({"fsdp", 4}, 2), with_muon({"fsdp", 2}));
}

TEST(MuonTraining, training_with_muon_ends_with_other_values_than_with_adamw) {
  const TemporaryFolder folder;
  EXPECT_NE(train(with_muon({"fsdp", 2}), folder)["param_sha256"],
            train(config_of({"fsdp", 2}, kMuonParts, 3), folder)["param_sha256"]);
}

}  // namespace
}  // namespace fsdp
