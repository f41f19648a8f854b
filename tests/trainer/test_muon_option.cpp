#include <gtest/gtest.h>
#include <train/checkpoint_room.h>
#include <train/muon_groups.h>

#include <common/expect_text.h>

#include <string>

#include "parsed.h"
#include "unmade_run.h"

namespace fsdp {
namespace {

const OptimizerOptions& options_of(const TrainConfig& config, const std::string& parameter,
                                   std::vector<ParameterGroup>& groups) {
  groups = config.optimizer.parameter_groups();
  return groups[group_of(parameter, groups)].options;
}

TEST(MuonOption, by_default_muon_leaves_embeddings_the_head_norms_and_biases_to_adamw) {
  using Kind = OptimizerOptions::Kind;
  const TrainConfig config = parsed({"--optimizer", "muon"});
  std::vector<ParameterGroup> groups;
  for (const char* name : {"wte.weight", "wpe.weight", "h.0.ln_1.weight", "h.0.attn.c_attn.bias",
                           "token_embeddings.weight", "lm_head.weight", "layers.3.ln2.weight"})
    EXPECT_EQ(options_of(config, name, groups).kind, Kind::adamw) << name;
  for (const char* name : {"h.0.attn.c_attn.weight", "h.11.mlp.c_proj.weight",
                           "layers.0.ffn.w1.weight", "layers.0.attn.q_proj.weight"})
    EXPECT_EQ(options_of(config, name, groups).kind, Kind::muon) << name;
}

TEST(MuonOption, the_option_adamw_selects_what_adamw_updates_and_no_decay_applies_to_muon_too) {
  using Kind = OptimizerOptions::Kind;
  const TrainConfig config = parsed(
      {"--optimizer", "muon", "--adamw", "^a|bias$", "--no-decay", "x", "--weight-decay", "0.5"});
  std::vector<ParameterGroup> groups;
  const auto expect = [&](const std::string& name, Kind kind, double decay) {
    const OptimizerOptions& options = options_of(config, name, groups);
    EXPECT_EQ(options.kind, kind) << name;
    EXPECT_EQ(options.weight_decay, decay) << name;
  };
  expect("a.weight", Kind::adamw, 0.5);
  expect("ax.weight", Kind::adamw, 0);
  expect("b.x.bias", Kind::adamw, 0);
  expect("b.weight", Kind::muon, 0.5);
  expect("b.x.weight", Kind::muon, 0);
}

TEST(MuonOption, options_that_contradict_muon_are_refused) {
  const auto refusal = [](const std::vector<std::string>& options) {
    return error_of<UsageError>([&] { parsed(options); });
  };
  EXPECT_EQ(refusal({"--adamw", "usual"}), "--adamw: needs --optimizer muon");
  EXPECT_CONTAINS(refusal({"--optimizer", "muon", "--mode", "fsdp", "--world", "2",
                           "--step-in-backward", "on"}),
                  "--step-in-backward on: --optimizer muon gathers the matrices of several units");
  EXPECT_CONTAINS(refusal({"--optimizer", "muon", "--adamw", "("}), "--adamw");
  EXPECT_CONTAINS(refusal({"--optimizer", "muon", "--offload", "optimizer", "--offload-dir", "."}),
                  "--offload optimizer: only the state of adamw can lie in files");
}

// Returns the layout of three units: an embedding, and two blocks with a matrix and a bias.
ShardLayout layout_of_blocks() {
  ShardLayout layout;
  layout.world_size = 2;
  layout.units = {{"root", 64, true, true}, {"h.0", 64, false, true}, {"h.1", 64, false, true}};
  layout.parameters = {{"wte.weight", 0, 0, 40, true, {10, 4}},
                       {"h.0.fc.weight", 1, 0, 32, true, {8, 4}},
                       {"h.0.fc.bias", 1, 32, 8, true, {8}},
                       {"h.1.fc.weight", 2, 0, 32, true, {8, 4}},
                       {"h.1.fc.bias", 2, 32, 8, true, {8}}};
  return layout;
}

TEST(MuonOption, describe_muon_lists_the_matrices_that_muon_updates_and_how_many_each_rank_has) {
  TrainConfig config = parsed({"--optimizer", "muon", "--mode", "fsdp", "--world", "2"});
  EXPECT_EQ(describe_muon(config, layout_of_blocks()),
            "muon: 2 matrices (h.*.fc.weight), 1 on each rank; adamw: 3 other parameters");
  config.ranks.mode = Mode::single;
  EXPECT_EQ(describe_muon(config, layout_of_blocks()),
            "muon: 2 matrices (h.*.fc.weight), all on each rank; adamw: 3 other parameters");
  config.optimizer.kind = OptimizerOptions::Kind::adamw;
  EXPECT_EQ(describe_muon(config, layout_of_blocks()), "");
}

TEST(MuonOption, the_option_adamw_is_refused_if_it_leaves_muon_a_vector_or_no_parameter) {
  const auto refusal = [](const std::string& pattern) {
    const TrainConfig config = parsed({"--optimizer", "muon", "--adamw", pattern});
    return error_of<std::invalid_argument>([&] { describe_muon(config, layout_of_blocks()); });
  };
  EXPECT_EQ(refusal("wte"),
            "--adamw wte: Muon updates matrices, and parameter 'h.0.fc.bias' has 1 dimensions; put "
            "it into a group of AdamW");
  EXPECT_CONTAINS(refusal("."), "--adamw .: leaves no parameter to Muon");
}

// 120 elements: the 64 of the matrices have one moment, and the other 56 have two.
TEST(MuonOption, with_muon_a_checkpoint_has_one_moment_of_a_matrix_and_two_of_other_parameters) {
  TrainConfig config = parsed({"--optimizer", "muon", "--mode", "fsdp", "--world", "2"});
  config.checkpoint.dir = "run";
  config.training.steps = 1;
  const int64_t bytes = 4 * (2 * 64 + 3 * 56);
  EXPECT_NO_THROW(require_room_for_checkpoints(config, layout_of_blocks(), bytes));
  EXPECT_CONTAINS(error_of<std::runtime_error>(
                      [&] { require_room_for_checkpoints(config, layout_of_blocks(), bytes - 1); }),
                  "--checkpoint-dir run");
}

}  // namespace
}  // namespace fsdp
