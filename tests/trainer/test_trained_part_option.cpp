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
      "h.1.attn.c_attn, h.1.attn.c_proj, ..., lm_head";
  for (const std::string pattern : {"q_proj", "wte"})
    EXPECT_EQ(with_target(pattern),
              "--lora-target " + pattern + ": matches no layer that can have an adapter" + names);
  EXPECT_EQ(with_target("c_proj"), "accepted");
  EXPECT_EQ(with_target("lm_head"), "accepted");
}

}  // namespace
}  // namespace fsdp
