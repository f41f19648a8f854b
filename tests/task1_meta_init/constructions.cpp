#include "constructions.h"

#include <testing/tensor_bits.h>
#include <torch/nn.h>

#include <set>

namespace fsdp {
namespace {

namespace nn = torch::nn;

template <typename Impl, typename... Arguments>
Construct make(Arguments... arguments) {
  return [=] { return std::make_shared<Impl>(arguments...); };
}

std::vector<std::pair<std::string, at::Tensor>> named_tensors_of(const nn::Module& module) {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto& item : module.named_parameters())
    tensors.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers())
    tensors.emplace_back(item.key(), item.value());
  return tensors;
}

// Describes a tensor of a module without its values. `first` is the name of the first tensor of the
// module that has the same storage. `same_variable`: whether the tensor and that first one are one
// Variable.
nlohmann::json description(const at::Tensor& tensor, const std::string& first, bool same_variable) {
  return {{"sizes", tensor.sizes().vec()},
          {"strides", tensor.strides().vec()},
          {"dtype", c10::toString(tensor.scalar_type())},
          {"device", tensor.device().str()},
          {"requires_grad", tensor.requires_grad()},
          {"leaf", tensor.is_leaf()},
          {"storage of", first},
          {"offset", tensor.storage_offset()},
          {"same variable", same_variable}};
}

void observe(TestRank& rank, const std::string& name, const nn::Module& module) {
  const auto tensors = named_tensors_of(module);
  std::set<std::string> observed;
  for (const auto& [key, tensor] : tensors) {
    std::string first;
    bool same_variable = false;
    for (const auto& [other_key, other] : tensors) {
      if (!other.is_alias_of(tensor)) continue;
      first = other_key;
      same_variable = other.is_same(tensor);
      break;
    }
    if (!observed.insert(key).second) continue;
    const std::string what = name + "." + key;
    rank.observe("what " + what + " is", description(tensor, first, same_variable));
    if (tensor.is_meta()) {
      rank.observe(what, what + " is on the meta device still: without values");
    } else {
      rank.observe(what, tensor);
    }
  }
  rank.observe(name + " holds", observed);
  rank.observe("random numbers drawn after " + name, torch::rand({4}));
}

}  // namespace

std::vector<Construction> modules_of_torch() {
  return {
      {"Linear", make<nn::LinearImpl>(5, 3)},
      {"Linear without bias", make<nn::LinearImpl>(nn::LinearOptions(5, 3).bias(false))},
      {"Bilinear", make<nn::BilinearImpl>(3, 4, 5)},
      {"Embedding", make<nn::EmbeddingImpl>(nn::EmbeddingOptions(9, 4).padding_idx(2))},
      {"EmbeddingBag", make<nn::EmbeddingBagImpl>(7, 5)},
      {"LayerNorm", make<nn::LayerNormImpl>(nn::LayerNormOptions({6}))},
      {"GroupNorm", make<nn::GroupNormImpl>(2, 6)},
      {"BatchNorm2d", make<nn::BatchNorm2dImpl>(6)},
      {"BatchNorm1d without statistics",
       make<nn::BatchNorm1dImpl>(nn::BatchNorm1dOptions(6).track_running_stats(false))},
      {"Conv2d", make<nn::Conv2dImpl>(nn::Conv2dOptions(4, 6, 3).groups(2))},
      {"ConvTranspose1d", make<nn::ConvTranspose1dImpl>(4, 6, 3)},
      {"PReLU", make<nn::PReLUImpl>(nn::PReLUOptions().num_parameters(3))},
      {"LSTM", make<nn::LSTMImpl>(nn::LSTMOptions(5, 4).num_layers(2).bidirectional(true))},
      {"GRU", make<nn::GRUImpl>(5, 4)},
      {"LSTMCell", make<nn::LSTMCellImpl>(5, 4)},
      {"MultiheadAttention", make<nn::MultiheadAttentionImpl>(
                                 nn::MultiheadAttentionOptions(8, 2).add_bias_kv(true).kdim(6))},
      {"TransformerEncoderLayer",
       make<nn::TransformerEncoderLayerImpl>(nn::TransformerEncoderLayerOptions(8, 2))},
      {"TransformerEncoder",
       [] {
         const auto layer = nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(12);
         return nn::TransformerEncoder(nn::TransformerEncoderOptions(layer, 3)).ptr();
       }},
      {"Transformer", make<nn::TransformerImpl>(nn::TransformerOptions(8, 2, 2, 2))},
      {"AdaptiveLogSoftmaxWithLoss", make<nn::AdaptiveLogSoftmaxWithLossImpl>(
                                         nn::AdaptiveLogSoftmaxWithLossOptions(20, 20, {5, 12}))},
      {"Sequential",
       [] {
         return nn::Sequential(nn::Linear(4, 8), nn::ReLU(), nn::BatchNorm1d(8), nn::Linear(8, 2))
             .ptr();
       }},
  };
}

std::vector<Construction> init_functions() {
  using Init = std::function<void(at::Tensor)>;
  const auto by = [](const std::string& name, const Init& init) {
    return holder(name, [=](Holder& self) {
      init(self.parameter("weight", torch::empty({20, 17})));
      init(self.parameter("tall", torch::empty({33, 3})));
      self.buffer("drawn after", torch::randn({3}));
    });
  };
  return {
      by("normal_", [](at::Tensor t) { nn::init::normal_(t, 0, 0.02); }),
      by("uniform_", [](at::Tensor t) { nn::init::uniform_(t, -2, 2); }),
      by("constant_", [](at::Tensor t) { nn::init::constant_(t, 0.25); }),
      by("eye_", [](at::Tensor t) { nn::init::eye_(t); }),
      by("orthogonal_", [](at::Tensor t) { nn::init::orthogonal_(t, 1.5); }),
      by("sparse_", [](at::Tensor t) { nn::init::sparse_(t, 0.3); }),
      by("xavier_normal_", [](at::Tensor t) { nn::init::xavier_normal_(t); }),
      by("xavier_uniform_", [](at::Tensor t) { nn::init::xavier_uniform_(t); }),
      by("kaiming_normal_", [](at::Tensor t) { nn::init::kaiming_normal_(t); }),
      by("kaiming_uniform_", [](at::Tensor t) { nn::init::kaiming_uniform_(t, std::sqrt(5)); }),
      by("truncated normal",
         [](at::Tensor t) {
           at::NoGradGuard no_grad;
           t.uniform_(-0.95, 0.95).erfinv_().mul_(0.02 * std::sqrt(2)).clamp_(-0.04, 0.04);
         }),
      by("bernoulli_",
         [](at::Tensor t) {
           at::NoGradGuard no_grad;
           t.bernoulli_(0.3).mul_(torch::randn_like(t));
         }),
      holder("factories",
             [](Holder& self) {
               self.buffer("rand", torch::rand({5}));
               self.buffer("randn", torch::randn({40}, torch::kDouble));
               self.buffer("randint", torch::randint(100, {6}));
               self.buffer("randperm", torch::randperm(11));
               self.buffer("rand_like", torch::rand_like(torch::ones({3, 2})));
               self.buffer("dropout", torch::dropout(torch::ones({50}), 0.5, true));
             }),
      holder("drawn with a tensor of parameters",
             [](Holder& self) {
               self.buffer("normal", at::normal(0.0, torch::arange(1, 7).to(torch::kFloat)));
               self.buffer("multinomial", torch::multinomial(torch::rand({8}), 3));
             }),
      holder("sizes",
             [](Holder& self) {
               self.parameter("no element", torch::randn({0}));
               self.parameter("no row", torch::empty({3, 0}).normal_());
               self.parameter("a number", torch::randn({}));
               self.parameter("half", torch::rand({17}, torch::kHalf));
               self.buffer("whole numbers", torch::empty({40}, torch::kInt).random_(9));
             }),
  };
}

Construction called_submodules() {
  return holder("called submodules", [](Holder& self) {
    nn::BatchNorm1d norm(3);
    self.register_module("norm", norm);
    norm(torch::randn({5, 3}));
    nn::Dropout dropout(0.5);
    self.buffer("dropped", dropout(torch::ones({30})));
  });
}

Construct transformer_layer(int64_t width) {
  return make<nn::TransformerEncoderLayerImpl>(nn::TransformerEncoderLayerOptions(width, 4));
}

at::Tensor run_layer(nn::Module& transformer_layer, const at::Tensor& input) {
  return transformer_layer.as<nn::TransformerEncoderLayer>()->forward(input);
}

std::vector<at::Tensor> tensors_of(const nn::Module& module) {
  std::vector<at::Tensor> tensors = module.parameters();
  for (const at::Tensor& buffer : module.buffers())
    tensors.push_back(buffer);
  return tensors;
}

std::string device_name(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.device().str() : "none: it was never made";
}

std::vector<std::string> device_names(const std::vector<at::Tensor>& tensors) {
  std::vector<std::string> devices(tensors.size());
  std::transform(tensors.begin(), tensors.end(), devices.begin(), device_name);
  return devices;
}

nlohmann::json numbers_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cpu()) return "no numbers, on device " + device_name(tensor);
  if (tensor.scalar_type() == at::kLong) return values_of<int64_t>(tensor);
  return values_of<float>(tensor);
}

Construction holder(std::string name, Holder::Fill fill) {
  return {std::move(name), [fill] { return std::make_shared<Holder>(fill); }};
}

Reinitialized::Reinitialized() {
  for (int64_t i = 0; i < kLayers; ++i)
    register_module("layer" + std::to_string(i), nn::Linear(kWidth, kWidth));
  at::NoGradGuard no_grad;
  for (at::Tensor& parameter : parameters())
    parameter.normal_(0, 0.02);
}

void expect_as_eager(const std::vector<Construction>& constructions, const Deferred& deferred) {
  const auto make_by = [&](const Deferred& make) {
    return [&, make](TestRank& rank) {
      for (const Construction& made : constructions) {
        torch::manual_seed(test_seed(7));
        const auto whole = [&] { observe(rank, made.name, *make(made.construct)); };
        rank.observe(made.name + ": what making it throws", thrown_by(whole));
      }
    };
  };
  const RankRun eager = run_oracle(make_by([](const Construct& construct) { return construct(); }));
  const RankRun run = run_ranks(1, make_by(deferred));
  const auto expect_same = [&](const std::string& name) {
    expect_on_rank(run, 0, name, eager.at(0, name));
  };
  for (const auto& [name, construct] : constructions) {
    const std::string thrown = name + ": what making it throws";
    expect_same(thrown);
    if (run.at(0, thrown) != eager.at(0, thrown)) continue;
    expect_same(name + " holds");
    for (const std::string key : eager.at(0, name + " holds")) {
      expect_same("what " + name + "." + key + " is");
      expect_same(name + "." + key);
    }
    expect_same("random numbers drawn after " + name);
  }
}

}  // namespace fsdp
