#include <gtest/gtest.h>
#include <nn/layers.h>
#include <nn/lora.h>
#include <nn/models.h>

#include <common/expect_text.h>
#include <common/in_a_process.h>

#include <string>
#include <vector>

namespace fsdp {
namespace {

using Names = std::vector<std::string>;

at::Tensor parameter_of(const torch::nn::Module& module, const std::string& name) {
  const auto parameters = module.named_parameters();
  return parameters[name].detach();
}

// Makes all parameters of adapters random, as after some training.
void train_adapters(const torch::nn::Module& module) {
  const at::NoGradGuard no_grad;
  for (auto& item : module.named_parameters())
    if (is_lora(item.key())) item.value().normal_();
}

TEST_IN_A_PROCESS(Lora, a_new_adapter_changes_no_output_and_is_all_that_is_trained) {
  torch::manual_seed(1);
  torch::nn::Linear base(5, 7);
  const at::Tensor x = torch::randn({3, 5});
  const at::Tensor expected = base(x);
  LoraLinear layer(base, {.rank = 2, .alpha = 3});
  const at::Tensor y = layer(x);
  EXPECT_TRUE(y.equal(expected));
  y.sum().backward();
  Names trained;
  for (const auto& item : layer.named_parameters()) {
    if (item.value().requires_grad()) trained.push_back(item.key());
    EXPECT_EQ(item.value().grad().defined(), item.value().requires_grad()) << item.key();
  }
  EXPECT_EQ(trained, (Names{"lora.A", "lora.B"}));
}

TEST_IN_A_PROCESS(Lora, an_adapter_adds_the_product_of_its_matrices_times_alpha_over_rank) {
  torch::manual_seed(2);
  for (const bool bias : {false, true}) {
    torch::nn::Linear base(torch::nn::LinearOptions(5, 7).bias(bias));
    LoraLinear layer(base, {.rank = 2, .alpha = 3});
    train_adapters(layer);
    const at::Tensor x = torch::randn({2, 3, 5});
    const at::Tensor sum =
        base->weight + 1.5 * parameter_of(layer, "lora.B").mm(parameter_of(layer, "lora.A"));
    EXPECT_TRUE(at::allclose(layer(x), at::linear(x, sum, base->bias), 1e-5, 1e-6));
  }
}

TEST_IN_A_PROCESS(Lora,
                  merge_lora_and_unmerge_lora_change_the_weight_but_not_the_output_of_a_layer) {
  torch::manual_seed(3);
  LoraLinear layer(torch::nn::Linear(6, 4));
  train_adapters(layer);
  const at::Tensor x = torch::randn({2, 6});
  const at::Tensor before = layer(x), weight = parameter_of(layer, "weight").clone();
  layer.merge_lora();
  layer.merge_lora();  // this second call changes nothing: the weights are merged already
  EXPECT_TRUE(at::allclose(layer(x), before, 1e-5, 1e-6));
  EXPECT_FALSE(parameter_of(layer, "weight").equal(weight));
  layer.unmerge_lora();
  layer.unmerge_lora();
  EXPECT_TRUE(at::allclose(parameter_of(layer, "weight"), weight, 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(layer(x), before, 1e-5, 1e-6));
}

// Adds adapters to the c_attn layers of gpt2-tiny, and later to its c_fc layers too.
TEST_IN_A_PROCESS(Lora, add_lora_adapts_the_layers_that_match_and_freezes_all_else) {
  torch::manual_seed(4);
  const auto model = make_model("gpt2-tiny");
  EXPECT_EQ(add_lora(*model, "c_attn$", {.rank = 2, .alpha = 2}),
            (Names{"h.0.attn.c_attn", "h.1.attn.c_attn", "h.2.attn.c_attn"}));
  for (const auto& item : model->named_parameters())
    EXPECT_EQ(item.value().requires_grad(), is_lora(item.key())) << item.key();
  const auto tokens = torch::arange(8).unsqueeze(0);
  train_adapters(*model);
  const at::Tensor logits = (*model)(tokens);
  merge_lora(*model);
  EXPECT_TRUE(at::allclose((*model)(tokens), logits, 1e-4, 1e-4));
  unmerge_lora(*model);
  add_lora(*model, "c_fc$", {.rank = 1, .alpha = 1});
  EXPECT_TRUE(model->named_parameters()["h.0.attn.c_attn.lora.A"].requires_grad());
}

TEST_IN_A_PROCESS(Lora, add_lora_throws_and_says_why_it_cannot_add_adapters) {
  const auto model = make_model("gpt2-tiny");
  const auto refusal = [&](const std::string& pattern, const LoraOptions& options) {
    return error_of([&] { add_lora(*model, pattern, options); });
  };
  EXPECT_CONTAINS(refusal("q_proj", {}), "no layer that can have an adapter matches 'q_proj'");
  EXPECT_CONTAINS(refusal("(", {}), "'(' is not a regular expression");
  EXPECT_CONTAINS(refusal("c_fc", {.rank = 0}), "must be positive, not 0 and 16");
  EXPECT_CONTAINS(refusal("c_fc", {.alpha = 0}), "must be positive, not 8 and 0");
  add_lora(*model, "h.0.mlp.c_fc", {});
  EXPECT_CONTAINS(refusal("c_fc", {}), "the layer has an adapter already");
}

// If an adapter of the head were merged into the tied weight, it would change the embedding too.
TEST_IN_A_PROCESS(Lora, add_lora_throws_if_the_pattern_matches_a_head_with_a_tied_weight) {
  const auto model = make_model("gpt2-tiny");
  for (const std::string pattern : {"lm_head", ".", "(c_attn|lm_head)$"})
    EXPECT_CONTAINS(error_of([&] { add_lora(*model, pattern, {}); }),
                    "matches lm_head, whose weight is also wte.weight");
  for (const auto& item : model->named_parameters())
    EXPECT_TRUE(item.value().requires_grad() && !is_lora(item.key())) << item.key();
}

}  // namespace
}  // namespace fsdp
