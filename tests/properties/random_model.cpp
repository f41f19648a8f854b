#include <ATen/CPUGeneratorImpl.h>
#include <checkpoint_activations.h>
#include <module_of.h>
#include <properties/random_model.h>
#include <strategies/model_device.h>

#include <tuple>

namespace fsdp {
namespace {

at::Tensor drawn(at::IntArrayRef sizes) {
  return at::randn(sizes) * 0.3;
}

// The output of a module of class Paired.
struct Both {
  at::Tensor hidden, gated;  // [rows, width]
  int64_t rows{};
  auto tensors() { return std::tie(hidden, gated); }
};

struct Paired : ModuleOf<Both(at::Tensor x, const at::Tensor& gate)> {
  explicit Paired(int64_t width) { weight = register_parameter("weight", drawn({width, width})); }
  Both forward(at::Tensor x, const at::Tensor& gate) override {
    const at::Tensor hidden = at::linear(x.to(weight.scalar_type()), weight).tanh();
    return {hidden, hidden * gate, x.size(0)};
  }
  at::Tensor weight;  // [width, width]
};
struct PairedBlock : Paired {
  using Paired::Paired;
};

// One layer of the model: y = x + f(x), x [rows, width]. See Layer for the kinds.
struct AnyLayer : Module {
  AnyLayer(const Layer& layer, int64_t width) {
    if (layer.kind == "odd") {
      scale = register_parameter("scale", drawn({width}));
      more = register_parameter("more", drawn({layer.size}));
      number = register_parameter("number", drawn({}));
      register_parameter("none", at::zeros({0}));
    } else {
      const at::Tensor values = drawn({width, width});
      weight = register_parameter("weight", layer.kind == "transposed" ? values.t() : values);
      bias = register_parameter("bias", drawn({width}));
    }
    if (layer.kind == "nested") inner = make({}, width, /*block=*/layer.block);
    if (inner) register_module("inner", inner);
    if (layer.kind == "paired")
      pair = layer.block ? std::make_shared<PairedBlock>(width) : std::make_shared<Paired>(width);
    if (pair) register_module("pair", pair);
    if (!layer.frozen) return;
    for (at::Tensor& parameter : parameters())
      parameter.set_requires_grad(false);
  }

  static std::shared_ptr<AnyLayer> make(const Layer& layer, int64_t width, bool block);

  // Makes this layer's weight the same tensor as the weight of `other`.
  void tie(const AnyLayer& other) { weight = parameters_["weight"] = other.weight; }

  at::Tensor forward(at::Tensor x) override {
    if (inner) x = (*inner)(x);
    if (pair) {
      const auto [hidden, gated, rows] = (*pair)(x, x * 0.5);
      x = x + (hidden + gated) / rows;
    }
    // Returns a copy of the tensor that the inner layer has returned. If both layers returned one
    // tensor, they would share its gradient. Then this rank would gather the inner unit before the
    // outer one in backward, and other ranks the outer one first.
    if (skips) return inner ? x.clone() : x;
    if (scale.defined()) return x + x * scale + more.sum() * number;
    const auto dtype = weight.scalar_type();  // the bias may have another dtype than this
    return x + at::linear(x.to(dtype), weight, bias.to(dtype)).tanh();
  }

  at::Tensor weight, bias;         // [width, width], [width]
  at::Tensor scale, more, number;  // [width], [size], []
  std::shared_ptr<AnyLayer> inner;
  std::shared_ptr<Paired> pair;
  bool skips{};  // whether the next forward does not use the layer's own parameters
};

struct LayerBlock : AnyLayer {
  using AnyLayer::AnyLayer;
};

std::shared_ptr<AnyLayer> AnyLayer::make(const Layer& layer, int64_t width, bool block) {
  if (block) return std::make_shared<LayerBlock>(layer, width);
  return std::make_shared<AnyLayer>(layer, width);
}

struct Scale : torch::nn::Module {
  explicit Scale(int64_t width) { weight = register_parameter("weight", at::randn({width})); }
  at::Tensor weight;  // [width]
};

struct RandomModel : Module {
  explicit RandomModel(const RandomTraining& c) : specs(c.layers) {
    first = register_module("first", std::make_shared<Scale>(c.width));
    for (const Layer& layer : specs) {
      const std::string name = "layers" + std::to_string(layers.size());
      layers.push_back(register_module(name, AnyLayer::make(layer, c.width, layer.block)));
      if (layer.tied >= 0) layers.back()->tie(*layers[static_cast<size_t>(layer.tied)]);
      const auto& innermost = layers.back()->inner ? layers.back()->inner : layers.back();
      if (layer.checkpointed && !innermost->pair) checkpoint_activations(*innermost);
    }
    head = register_module("head", std::make_shared<Scale>(c.width));
  }

  at::Tensor forward(at::Tensor x) override {
    x = x.to(first->weight.scalar_type()) * first->weight;
    for (size_t i = 0; i < layers.size(); ++i) {
      const std::string& use = specs[i].use;
      layers[i]->skips = use == "odd" && !odd;
      if (use != "never") x = (*layers[i])(x);
      if (use == "twice") x = (*layers[i])(x);
    }
    return x * head->weight;
  }

  std::vector<Layer> specs;
  std::vector<std::shared_ptr<AnyLayer>> layers;
  std::shared_ptr<Scale> first, head;
  bool odd{};  // whether step + microbatch is odd in the next forward
};

}  // namespace

Workload workload_of(const RandomTraining& c) {
  const auto build = [c] {
    torch::manual_seed(c.values);
    return std::make_shared<RandomModel>(c);
  };
  const auto loss = [c](Module& model, int microbatch, int microbatches, int64_t step) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(c.values + 1000 * step);
    const at::Tensor batch = at::randn({2 * microbatches, c.width}, generator);
    dynamic_cast<RandomModel&>(model).odd = (step + microbatch) % 2 == 1;
    return model(to_device_of(model, batch.chunk(microbatches)[microbatch]))
        .to(at::kFloat)
        .square()
        .mean();
  };
  return {build, loss};
}

}  // namespace fsdp
