#include <gtest/gtest.h>

#include <common/expect_text.h>

#include "parsed.h"

namespace fsdp {
namespace {

TEST(TrainedPartOption, a_pattern_of_freeze_that_leaves_nothing_to_train_is_refused) {
  EXPECT_CONTAINS(refusal({"--model", "gpt2-tiny", "--freeze", "transformer"}),
                  "--freeze transformer: matches no parameter; their names are wte.weight, "
                  "wpe.weight, h.0.ln_1.weight, ");
  EXPECT_EQ(refusal({"--model", "gpt2-tiny", "--freeze", "."}),
            "--freeze .: matches all parameters, so none is left to train");
  EXPECT_EQ(refusal({"--model", "gpt2-tiny", "--freeze", "wte"}), "accepted");
}

TEST(TrainedPartOption, a_pattern_of_lora_target_that_matches_no_layer_is_refused) {
  const auto with_target = [](const std::string& target) {
    return refusal({"--model", "gpt2-tiny", "--lora", "2", "--lora-target", target});
  };
  const std::string names =
      "; their names are h.0.attn.c_attn, h.0.attn.c_proj, h.0.mlp.c_fc, h.0.mlp.c_proj, "
      "h.1.attn.c_attn, h.1.attn.c_proj, ..., h.2.mlp.c_proj";
  for (const std::string pattern : {"q_proj", "wte"})
    EXPECT_EQ(with_target(pattern),
              "--lora-target " + pattern + ": matches no layer that can have an adapter" + names);
  EXPECT_EQ(with_target("c_proj"), "accepted");
}

TEST(TrainedPartOption, a_pattern_of_lora_target_that_matches_a_tied_head_is_refused) {
  const auto with_target = [](const std::string& model, const std::string& target) {
    return refusal({"--model", model, "--lora", "2", "--lora-target", target});
  };
  for (const std::string pattern : {"lm_head", ".", "(c_attn|lm_head)$"})
    EXPECT_EQ(with_target("gpt2-tiny", pattern),
              "--lora-target " + pattern +
                  ": matches lm_head, whose weight is also that of the embedding, so that export "
                  "could not merge its adapter; give a pattern that does not match lm_head");
  EXPECT_EQ(with_target("small", "lm_head"), "accepted");  // its head has a weight of its own
}

}  // namespace
}  // namespace fsdp
