#include <set>

#include "same_bits.h"

// Tests of runs with dropout, whose random numbers depend on the step and the microbatch, not on
// the rank.
namespace fsdp {
namespace {

constexpr int kParts = 4;

TrainConfig with_dropout(const Arranged& how, int64_t steps = 3) {
  TrainConfig config = config_of(how, kParts, steps);
  config.model.name = "gpt2-tiny:dropout=0.2";
  return config;
}

TEST(Dropout, a_run_with_dropout_ends_with_the_same_bits_for_every_mode_and_number_of_ranks) {
  const SameBits same_bits(with_dropout({"single", 1}));
  for (const Arranged& how : std::vector<Arranged>{
           {"ddp", 2}, {"ddp", 4}, {"fsdp", 1}, {"fsdp", 2}, {"fsdp", 4}, {"fsdp", 4, 2}}) {
    TrainConfig config = with_dropout(how);
    same_bits.expect_of(config, named(how));
    if (how.mode != "fsdp") continue;  // only mode fsdp can recompute activations
    config.memory.activation_checkpoint_every = 1;
    same_bits.expect_of(config, named(how) + ", recomputed");
  }
  same_bits.expect_of_resumed(with_dropout({"fsdp", 4}, 2), with_dropout({"fsdp", 2}));
}

TEST(Dropout, the_trained_parameters_depend_on_the_dropout_probability) {
  const TemporaryFolder folder;
  std::set<std::string> hashes;
  for (const char* model : {"gpt2-tiny", "gpt2-tiny:dropout=0.1", "gpt2-tiny:dropout=0.2"}) {
    TrainConfig config = config_of({"fsdp", 2}, kParts, 2);
    config.model.name = model;
    hashes.insert(train(config, folder)["param_sha256"]);
  }
  EXPECT_EQ(hashes.size(), 3);
}

TEST(Dropout, an_evaluation_of_a_model_with_dropout_drops_no_activation) {
  const TemporaryFolder folder;
  std::vector<nlohmann::json> losses;
  for (const char* model : {"gpt2-tiny", "gpt2-tiny:dropout=0.2"}) {
    TrainConfig config = config_of({"fsdp", 2}, kParts, 0);
    config.model.name = model;
    config.reports.log = folder.path() + "/" + model;
    train(config, folder);
    losses.push_back(lines_of(config.reports.log).back()["loss"]);
  }
  EXPECT_TRUE(losses[0].is_number());
  EXPECT_EQ(losses[0], losses[1]);
}

}  // namespace
}  // namespace fsdp
