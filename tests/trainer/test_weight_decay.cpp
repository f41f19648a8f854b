#include <gtest/gtest.h>

#include "parsed.h"

namespace fsdp {
namespace {

TEST(WeightDecay, no_decay_usual_exempts_norms_and_biases_from_weight_decay) {
  const TrainConfig config = parsed({"--no-decay", "usual"});
  for (const char* name : {"h.0.ln_1.weight", "ln_f.bias", "h.0.attn.c_attn.bias",
                           "ln_final.weight", "layers.3.ln2.weight"})
    EXPECT_EQ(group_of(name, config.optimizer.parameter_groups()), 0) << name;
  for (const char* name : {"wte.weight", "h.0.mlp.c_fc.weight", "layers.0.ffn.w1.weight"})
    EXPECT_EQ(group_of(name, config.optimizer.parameter_groups()), 1) << name;
}

}  // namespace
}  // namespace fsdp
