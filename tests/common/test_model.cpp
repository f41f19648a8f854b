#include <gtest/gtest.h>
#include <launch/shared_region.h>
#include <memory/counting_allocator.h>
#include <memory/live_bytes.h>
#include <nn/gpt2.h>
#include <nn/layers.h>
#include <nn/models.h>
#include <nn/random_scope.h>
#include <nn/transformer_lm.h>
#include <optim/shard_layout.h>

#include <cmath>
#include <set>

#include "expect_text.h"
#include "in_a_process.h"

namespace fsdp {
namespace {

const TransformerLMOptions kTinyLM{61, 19, 20, 2, 5, 33};
const std::string kSizes = "llama:vocabulary=61,context=19,d_model=24,layers=2,heads=6,d_ff=33";
const std::string kOthers = ",rope_theta=500.0,norm_eps=1e-06,qkv_bias=true,tied_head=true";
const std::string kTinyLlama = kSizes + ",kv_heads=2" + kOthers;

int64_t numel_of(const Module& module) {
  int64_t numel = 0;
  for (const auto& parameter : distinct_parameters(module))
    numel += parameter.tensor.numel();
  return numel;
}

TEST_IN_A_PROCESS(Model, backward_never_holds_two_gradients_of_a_tied_weight_and_also_their_sum) {
  counting_allocator::install();
  Embedding embedding(torch::randn({4000, 64}));
  Linear head(embedding.weight());
  const auto loss = head(embedding(torch::arange(6).view({2, 3}))).sum();
  const int64_t bytes = int64_t{4} * 4000 * 64;
  const int64_t before = live_bytes::now().total;
  live_bytes::enter(Phase::backward);
  loss.backward();
  const int64_t most = live_bytes::peak().total - before;
  EXPECT_GT(most, bytes);
  EXPECT_LT(2 * most, 5 * bytes);
}

TEST_IN_A_PROCESS(Model, a_frozen_weight_or_input_of_a_layer_gets_no_gradient) {
  const auto x = torch::randn({2, 3, 5}).requires_grad_();
  Linear layer(torch::randn({7, 5}));
  layer(x.detach()).sum().backward();
  EXPECT_FALSE(x.grad().defined());
  layer.parameters().front().mutable_grad().reset();
  layer.parameters().front().requires_grad_(false);
  layer(x).sum().backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(layer.parameters().front().grad().defined());
}

TEST_IN_A_PROCESS(Model, gpt2_applies_dropout_in_training_mode_and_not_in_eval_mode) {
  const torch::NoGradGuard no_grad;
  const auto tokens = torch::randint(0, 61, {2, 12}, torch::kLong);
  const auto model_of = [](const char* name) {
    torch::manual_seed(1);
    return make_model(name);
  };
  const auto plain = model_of("gpt2-tiny"), dropped = model_of("gpt2-tiny:dropout=0.3");
  const at::Tensor expected = (*plain)(tokens);
  EXPECT_FALSE((*dropped)(tokens).equal(expected));
  dropped->eval();
  EXPECT_TRUE((*dropped)(tokens).equal(expected));
}

TEST_IN_A_PROCESS(Model, the_numbers_of_a_random_scope_depend_only_on_its_arguments) {
  const auto drawn = [](uint64_t seed, int64_t step, int64_t microbatch) {
    const RandomScope scope(c10::kCPU, seed, step, microbatch);
    return torch::randint(1 << 30, {1}).item<int64_t>();
  };
  torch::manual_seed(1);
  const at::Tensor before = torch::rand({3});
  torch::manual_seed(1);
  std::set<int64_t> all;
  for (const uint64_t seed : {0, 1, 42})
    for (int64_t step = 0; step < 10; ++step)
      for (int64_t microbatch = 0; microbatch < 10; ++microbatch)
        all.insert(drawn(seed, step, microbatch));
  EXPECT_GE(all.size(), 299);  // 300 random numbers below 2^30: at most one pair may be equal
  EXPECT_EQ(drawn(42, 3, 5), drawn(42, 3, 5));
  EXPECT_TRUE(torch::rand({3}).equal(before)) << "the generator has its state from before";
}

TEST_IN_A_PROCESS(Model, the_name_of_a_gpt2_model_can_set_its_dropout) {
  for (const std::string name :
       {"gpt2-124m:dropout=0.1",
        "gpt2:vocabulary=61,context=19,d_model=24,layers=2,heads=6,d_ff=33,dropout=0.25"}) {
    EXPECT_EQ(model_name(model_shape(name)), name);
    EXPECT_EQ(model_info(name).name, name);
  }
  EXPECT_EQ(model_name(model_shape("gpt2:dropout=0.1")), "gpt2-124m:dropout=0.1");
  const auto error = [](const std::string& name) { return error_of([&] { model_info(name); }); };
  EXPECT_CONTAINS(error("gpt2-tiny:dropout=1"), "dropout is 1, not a number above 0 and below 1");
  EXPECT_CONTAINS(error("gpt2-tiny:dropout="), "not a number above 0 and below 1");
  EXPECT_CONTAINS(error("small:dropout=0.1"), "only a GPT-2 has dropout");
  EXPECT_CONTAINS(error(kTinyLlama + ",dropout=0.1"), "has no dropout");
}

TEST_IN_A_PROCESS(Model, attention_does_not_see_later_tokens) {
  for (const std::string name : {"small", "gpt2-tiny"}) {
    torch::NoGradGuard no_grad;
    auto model = make_model(name);
    auto tokens = torch::randint(0, 61, {1, 12}, torch::kLong);
    const auto before = (*model)(tokens);
    tokens[0][7] = (tokens[0][7] + 1) % 61;
    const auto after = (*model)(tokens);
    EXPECT_TRUE(torch::allclose(before.narrow(1, 0, 7), after.narrow(1, 0, 7), 0, 1e-6)) << name;
    EXPECT_GT((before - after).abs().amax(-1).narrow(1, 7, 5).min().item<float>(), 1e-4) << name;
  }
}

// Checks each gradient g of `model` numerically: moving the parameter along g must change the loss
// with slope |g|.
void expect_gradients_to_be_slopes(Module& model) {
  const auto tokens = torch::randint(0, 61, {3, 13}, torch::kLong);
  const auto loss = [&] {
    return language_model_loss(model, tokens.narrow(1, 0, 12), tokens.narrow(1, 1, 12));
  };
  loss().backward();
  for (const auto& [name, parameter] : distinct_parameters(model)) {
    const auto gradient = parameter.grad().clone();
    const double norm = gradient.norm().item<double>();
    const double size = parameter.detach().norm().item<double>();
    const double step = size > 0 ? 2e-2 * std::min(1.0, size) : 5e-3;
    torch::NoGradGuard no_grad;
    const auto at_distance = [&, &parameter = parameter](double distance) {
      parameter.add_(gradient, distance / norm);
      const double value = loss().item<double>();
      parameter.sub_(gradient, distance / norm);
      return value;
    };
    const double slope = (at_distance(step) - at_distance(-step)) / (2 * step);
    EXPECT_NEAR(slope, norm, 0.01 * norm + 1e-4) << name;
  }
}

TEST_IN_A_PROCESS(Model, gradients_are_the_slopes_of_the_loss) {
  torch::manual_seed(3);
  TransformerLM lm(kTinyLM);
  expect_gradients_to_be_slopes(lm);
  GPT2 gpt2({61, 19, 35, 2, 5, 121});
  expect_gradients_to_be_slopes(gpt2);
}

TEST_IN_A_PROCESS(Model, heads_that_share_keys_and_values_compute_what_heads_with_copies_compute) {
  const auto shared = make_model(kTinyLlama), copied = make_model(kSizes + kOthers);
  const auto named = shared->named_parameters();
  for (const auto& [name, parameter] : distinct_parameters(*copied)) {
    at::Tensor values = named[name].detach().normal_(0, 0.2);
    if (values.sizes() != parameter.sizes())
      values = values.unflatten(0, {2, -1}).repeat_interleave(3, 0).flatten(0, 1);
    parameter.detach().copy_(values);
  }
  const auto tokens = torch::randint(0, 61, {3, 13}, torch::kLong);
  const auto loss = language_model_loss(*shared, tokens, tokens);
  const auto loss_of_copies = language_model_loss(*copied, tokens, tokens);
  EXPECT_NEAR(loss.item<double>(), loss_of_copies.item<double>(), 1e-4);
  loss.backward();
  loss_of_copies.backward();
  for (const auto& [name, parameter] : distinct_parameters(*copied)) {
    at::Tensor gradient = parameter.grad();
    if (named[name].sizes() != parameter.sizes())
      gradient = gradient.unflatten(0, {2, 3, -1}).sum(1).flatten(0, 1);
    EXPECT_TRUE(torch::allclose(named[name].grad(), gradient, 1e-3, 1e-4)) << name;
  }
}

TEST(Model, model_shape_parses_a_model_name_that_lists_its_sizes_and_refuses_invalid_sizes) {
  EXPECT_EQ(model_name(model_shape(kTinyLlama)), kTinyLlama);
  EXPECT_EQ(model_name(model_shape("gpt2:context=19,vocabulary=61,d_model=35,layers=3,heads=5,"
                                   "d_ff=121")),
            "gpt2-tiny");
  for (const auto& name : model_names())
    EXPECT_EQ(parse_shape(to_string(model_shape(name))), model_shape(name));
  EXPECT_EQ(model_info(kTinyLlama).seq, 18);
  EXPECT_EQ(std::get<TransformerLMOptions>(model_shape(kSizes)).kv_heads, 6);
  const auto expect_refused = [](const std::string& name, const std::string& reason) {
    EXPECT_EQ(error_of<std::invalid_argument>([&] { model_shape(name); }),
              "model '" + name + "': " + reason);
  };
  for (const auto& [name, reason] : std::vector<std::pair<std::string, std::string>>{
           {"bert:d_ff=1", "bert is not a family of models; known families: gpt2, llama"},
           {"llama:", "vocabulary is missing"},
           {"llama:vocabulary", "vocabulary is missing"},
           {"llama:vocabulary=", "vocabulary is , not a number from 1 to 100000000"},
           {kSizes + ",kv_heads=4", "kv_heads 4 does not divide heads 6"},
           {kSizes + ",heads=5", "heads comes twice"},
           {kSizes + ",bias=true", "has no bias"},
           {kSizes + ",norm_eps=nan", "norm_eps is nan, not a number above 0 and below 1e12"},
           {kSizes + ",tied_head=1", "tied_head is 1, not true or false"}})
    expect_refused(name, reason);
}

TEST(Model, model_shape_accepts_the_names_that_gpt2_models_have_at_hugging_face) {
  EXPECT_EQ(model_name(model_shape("gpt2")), "gpt2-124m");
  EXPECT_EQ(model_name(model_shape("gpt2-medium")), "gpt2-355m");
  EXPECT_EQ(model_name(model_shape("gpt2-large")), "gpt2-774m");
  EXPECT_EQ(model_name(model_shape("gpt2-xl")), "gpt2-1558m");
  EXPECT_EQ(model_info("gpt2-xl").name, "gpt2-1558m");
}

TEST_IN_A_PROCESS(Model, gpt2_initializes_residual_projections_with_a_smaller_standard_deviation) {
  GPT2 model({101, 33, 128, 8, 4, 512});
  const auto named = model.named_parameters();
  const auto std_of = [&](const char* name) { return named[name].std().item<double>(); };
  EXPECT_NEAR(std_of("wte.weight"), 0.02, 0.001);
  EXPECT_NEAR(std_of("h.3.mlp.c_fc.weight"), 0.02, 0.001);
  EXPECT_NEAR(std_of("h.3.mlp.c_proj.weight"), 0.005, 0.0003);
  EXPECT_NEAR(std_of("h.3.attn.c_proj.weight"), 0.005, 0.0003);
}

TEST_IN_A_PROCESS(Model, with_bf16_parameters_a_model_computes_in_bf16_and_its_loss_in_fp32) {
  torch::manual_seed(5);
  TransformerLM model(kTinyLM);
  const auto tokens = torch::randint(0, 61, {2, 9}, torch::kLong);
  const auto full = model(tokens);
  for (const auto& [name, tensor] : distinct_parameters(model)) {
    tensor.set_data(tensor.detach().to(torch::kBFloat16));
  }
  const auto reduced = model(tokens);
  EXPECT_EQ(reduced.scalar_type(), torch::kBFloat16);
  EXPECT_TRUE(torch::allclose(full, reduced.to(torch::kFloat), 0.05, 0.1));
  EXPECT_EQ(language_model_loss(model, tokens, tokens).scalar_type(), torch::kFloat);
}

TEST_IN_A_PROCESS(Model, a_sequence_longer_than_the_context_and_an_unknown_model_name_throw) {
  TransformerLM model(kTinyLM);
  EXPECT_THROW(model(torch::zeros({1, 20}, torch::kLong)), std::invalid_argument);
  const std::string error = error_of<std::invalid_argument>([] { make_model("gpt5"); });
  for (const auto& name : model_names())
    EXPECT_CONTAINS(error, name);
}

TEST(Model, named_models_have_the_published_sizes_and_settings) {
  in_a_process([] {
    EXPECT_EQ(numel_of(*make_model("gpt2-124m")), 124'439'808);
    EXPECT_NEAR(static_cast<double>(numel_of(*make_model("gpt2-36m"))), 36e6, 0.1e6);
  });
  const auto& xl = model_info("gpt2xl");
  EXPECT_EQ(xl.vocabulary, 50304);
  EXPECT_EQ(xl.batch, 8);
  EXPECT_EQ(xl.seq, 127);
  EXPECT_EQ(xl.steps, 10);
  EXPECT_EQ(xl.lr, 5e-4);
}

}  // namespace
}  // namespace fsdp
