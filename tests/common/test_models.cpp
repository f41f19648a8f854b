#include <data/dataset.h>
#include <gtest/gtest.h>
#include <memory/counting_allocator.h>
#include <memory/live_bytes.h>
#include <nn/gpt2.h>
#include <nn/layers.h>
#include <nn/models.h>
#include <nn/transformer_lm.h>
#include <optim/shard_layout.h>
#include <optim/update_rule.h>

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

double sum_of(const Module& module) {
  double sum = 0;
  for (const auto& p : distinct_parameters(module))
    sum += p.tensor.sum(at::kDouble).item<double>();
  return sum;
}

// Every parameter as one piece, padded as update() wants it; parameters and gradients move into the
// pieces.
std::vector<Piece> flatten(const Module& module) {
  std::vector<Piece> pieces;
  const auto parameters = distinct_parameters(module);
  for (const auto& [name, parameter] : parameters) {
    const auto sizes = parameter.sizes();
    const int64_t numel = parameter.numel();
    Piece piece;
    piece.parameter = torch::zeros({(numel + 15) / 16 * 16});
    piece.gradient = torch::zeros_like(piece.parameter);
    piece.parameter.narrow(0, 0, numel).copy_(parameter.detach().flatten());
    parameter.set_data(piece.parameter.narrow(0, 0, numel).view(sizes));
    parameter.mutable_grad() = piece.gradient.narrow(0, 0, numel).view(sizes);
    pieces.push_back(piece);
  }
  return pieces;
}

TEST(Models, the_small_model_reproduces_the_published_run) {
  in_a_process([] {
    const auto& info = model_info("small");
    torch::manual_seed(42);
    auto model = make_model("small");
    auto data = make_published_dataset(info.vocabulary, 42);
    EXPECT_EQ(numel_of(*model), 4'708'608);
    EXPECT_NEAR(sum_of(*model), 2286.153202, 1e-6 * 2286);

    OptimizerOptions adamw;
    adamw.lr = info.lr;
    auto pieces = flatten(*model);
    std::vector<double> losses;
    for (int64_t step = 0; step < info.steps; ++step) {
      for (auto& piece : pieces)
        piece.gradient.zero_();
      const auto batch = data->batch(step, info.batch, info.seq);
      auto loss = language_model_loss(*model, batch.inputs, batch.targets);
      loss.backward();
      update(adamw, pieces);
      losses.push_back(loss.item<double>());
    }
    EXPECT_NEAR(losses.front(), 7.1115727425, 1e-6 * 7.1);
    EXPECT_NEAR(losses.back(), 7.0903296471, 1e-6 * 7.1);
    EXPECT_NEAR(sum_of(*model), 2286.522560, 1e-6 * 2286);
  });
}

TEST(Models, name_their_parameters_as_the_models_of_pytorch_do) {
  in_a_process([] {
    std::set<std::string> names;
    for (const auto& [name, tensor] : distinct_parameters(TransformerLM(kTinyLM))) {
      names.insert(name);
    }
    for (const char* name :
         {"token_embeddings.weight", "layers.0.attn.q_proj.weight", "layers.1.attn.k_proj.weight",
          "layers.0.attn.v_proj.weight", "layers.0.attn.output_proj.weight",
          "layers.1.ffn.w1.weight", "layers.1.ffn.w2.weight", "layers.1.ffn.w3.weight",
          "layers.0.ln1.weight", "layers.1.ln2.weight", "ln_final.weight", "lm_head.weight"}) {
      EXPECT_TRUE(names.count(name)) << name;
    }
    EXPECT_EQ(names.size(), 3u + 2 * 9);
  });
}

TEST(Models, blocks_have_a_known_type_and_are_called_with_their_hooks) {
  in_a_process([] {
    for (const std::string name : {"small", "gpt2-tiny"}) {
      auto model = make_model(name, 50);
      const std::string type = name == "small" ? "fsdp::TransformerBlock" : "fsdp::GPT2Block";
      int blocks = 0, calls = 0;
      for (const auto& submodule : model->modules()) {
        if (submodule->name() != type) continue;
        ++blocks;
        std::dynamic_pointer_cast<Module>(submodule)->register_forward_hook(
            [&calls](Module&, const torch::Tensor&) {
              ++calls;
              return torch::Tensor();
            });
      }
      const auto logits = (*model)(torch::zeros({2, 5}, torch::kLong));
      EXPECT_EQ(logits.sizes(), (std::vector<int64_t>{2, 5, 50}));
      EXPECT_EQ(blocks, name == "small" ? 4 : 3);
      EXPECT_EQ(calls, blocks);
    }
  });
}

TEST(Models, a_tied_head_is_one_variable_with_the_embedding) {
  in_a_process([] {
    auto model = make_model("gpt2-tiny");
    const auto named = model->named_parameters();
    EXPECT_EQ(named["wte.weight"].unsafeGetTensorImpl(),
              named["lm_head.weight"].unsafeGetTensorImpl());
    EXPECT_EQ(distinct_parameters(*model).size() + 1, named.size());
    EXPECT_EQ(distinct_parameters(*model).front().name, "wte.weight");
    for (const auto& [name, tensor] : distinct_parameters(*model))
      EXPECT_EQ(tensor.numel() % 2, 1) << name << ", of a size that no number of ranks divides";
  });
}

TEST(Models, backward_holds_two_gradients_of_a_tied_weight_and_not_their_sum_besides) {
  in_a_process([] {
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
  });
}

TEST(Models, a_frozen_weight_or_input_of_a_layer_gets_no_gradient) {
  in_a_process([] {
    const auto x = torch::randn({2, 3, 5}).requires_grad_();
    Linear layer(torch::randn({7, 5}));
    layer(x.detach()).sum().backward();
    EXPECT_FALSE(x.grad().defined());
    layer.parameters().front().mutable_grad().reset();
    layer.parameters().front().requires_grad_(false);
    layer(x).sum().backward();
    EXPECT_TRUE(x.grad().defined());
    EXPECT_FALSE(layer.parameters().front().grad().defined());
  });
}

TEST(Models, do_not_see_later_tokens) {
  in_a_process([] {
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
  });
}

// The slope of the loss along its gradient g is |g|.
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

TEST(Models, gradients_are_the_slopes_of_the_loss) {
  in_a_process([] {
    torch::manual_seed(3);
    TransformerLM lm(kTinyLM);
    expect_gradients_to_be_slopes(lm);
    GPT2 gpt2({61, 19, 35, 2, 5, 121});
    expect_gradients_to_be_slopes(gpt2);
  });
}

TEST(Models, heads_share_keys_and_values_as_if_each_had_its_own_copy) {
  in_a_process([] {
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
  });
}

TEST(Models, may_be_named_by_their_sizes) {
  EXPECT_EQ(model_name(model_shape(kTinyLlama)), kTinyLlama);
  EXPECT_EQ(model_name(model_shape("gpt2:context=19,vocabulary=61,d_model=35,layers=3,heads=5,"
                                   "d_ff=121")),
            "gpt2-tiny");
  for (const auto& name : model_names())
    EXPECT_EQ(parse_shape(to_string(model_shape(name))), model_shape(name));
  EXPECT_EQ(model_info(kTinyLlama).seq, 18);
  EXPECT_EQ(std::get<TransformerLMOptions>(model_shape(kSizes)).kv_heads, 6);
  for (const auto& [text, reason] : std::vector<std::pair<std::string, std::string>>{
           {"bert:d_ff=1", "bert is no family of models; known are gpt2, llama"},
           {"llama:", "vocabulary is missing"},
           {"llama:vocabulary", "vocabulary is missing"},
           {"llama:vocabulary=", "vocabulary is , not a number from 1 to 100000000"},
           {kSizes + ",kv_heads=4", "kv_heads 4 does not divide heads 6"},
           {kSizes + ",heads=5", "heads comes twice"},
           {kSizes + ",bias=true", "has no bias"},
           {kSizes + ",norm_eps=nan", "norm_eps is nan, not a number above 0 and below 1e12"},
           {kSizes + ",tied_head=1", "tied_head is 1, not true or false"}})
    EXPECT_EQ(error_of<std::invalid_argument>([&] { model_shape(text); }),
              "model '" + text + "': " + reason);
}

TEST(Models, initialize_residual_projections_with_smaller_values) {
  in_a_process([] {
    GPT2 model({101, 33, 128, 8, 4, 512});
    const auto named = model.named_parameters();
    const auto std_of = [&](const char* name) { return named[name].std().item<double>(); };
    EXPECT_NEAR(std_of("wte.weight"), 0.02, 0.001);
    EXPECT_NEAR(std_of("h.3.mlp.c_fc.weight"), 0.02, 0.001);
    EXPECT_NEAR(std_of("h.3.mlp.c_proj.weight"), 0.005, 0.0003);
    EXPECT_NEAR(std_of("h.3.attn.c_proj.weight"), 0.005, 0.0003);
  });
}

TEST(Models, can_compute_in_reduced_precision) {
  in_a_process([] {
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
  });
}

TEST(Models, refuse_sequences_that_are_too_long_and_unknown_names) {
  in_a_process([] {
    TransformerLM model(kTinyLM);
    EXPECT_THROW(model(torch::zeros({1, 20}, torch::kLong)), std::invalid_argument);
    const std::string error = error_of<std::invalid_argument>([] { make_model("gpt5"); });
    for (const auto& name : model_names())
      EXPECT_CONTAINS(error, name);
  });
}

TEST(Models, have_the_published_sizes_and_settings) {
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
