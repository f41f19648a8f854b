#pragma once

#include <nn/gpt2.h>
#include <nn/layers.h>
#include <nn/models.h>
#include <nn/transformer_lm.h>
#include <strategies/workload.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

// Small language models, with an embedding and a head of any size.
namespace fsdp {

constexpr int64_t kWidth = 8, kContext = 12;
constexpr int64_t kRowsOfABlock = 70;  // of kWidth elements: a TransformerBlock has 560

inline std::shared_ptr<Module> untied_model(int64_t vocabulary) {
  return std::make_shared<TransformerLM>(
      TransformerLMOptions{vocabulary, kContext, kWidth, 3, 2, 12});
}

inline std::shared_ptr<Module> tied_model(int64_t vocabulary) {
  return std::make_shared<GPT2>(GPT2Options{vocabulary, kContext, kWidth, 3, 2, 12});
}

// What a norm is to the units: a few parameters between two layers.
struct Gain : Module {
  Gain() : gain(register_parameter("gain", at::ones({kWidth}))) {}
  at::Tensor forward(at::Tensor x) override { return x * gain; }
  at::Tensor gain;
};

// GPT-2 with a head of its own, which is larger than the embedding. The root keeps the positions,
// which are few, and the last gain.
struct UntiedGPT2 : Module {
  UntiedGPT2() {
    const auto draw = [](int64_t rows) { return at::randn({rows, kWidth}); };
    wte = register_module("wte", std::make_shared<Embedding>(draw(100)));
    wpe = register_module("wpe", std::make_shared<Embedding>(draw(kContext)));
    auto list = register_module("h", std::make_shared<torch::nn::ModuleListImpl>());
    for (int i = 0; i < 3; ++i) {
      blocks.push_back(std::make_shared<GPT2Block>(GPT2Options{200, kContext, kWidth, 3, 2, 12}));
      list->push_back(blocks.back());
    }
    gain = register_module("gain", std::make_shared<Gain>());
    head = register_module("head", std::make_shared<Linear>(draw(200)));
  }
  at::Tensor forward(at::Tensor tokens) override {
    at::Tensor x = (*wte)(tokens) + (*wpe)(at::arange(tokens.size(1)));
    for (const auto& block : blocks)
      x = (*block)(x);
    return (*head)((*gain)(x));
  }
  std::shared_ptr<Module> wte, wpe, gain, head;
  std::vector<std::shared_ptr<GPT2Block>> blocks;
};

struct NamedModel {
  std::string name;
  std::function<std::shared_ptr<Module>()> build;
};

inline std::vector<NamedModel> language_models() {
  return {{"small vocabulary", [] { return untied_model(kRowsOfABlock - 1); }},
          {"large vocabulary", [] { return untied_model(kRowsOfABlock); }},
          {"tied, large vocabulary", [] { return tied_model(200); }},
          {"untied, a larger head", [] { return std::make_shared<UntiedGPT2>(); }}};
}

// The model on 12 rows of random tokens a step, which 1, 2, 3, 4 and 6 parts divide.
inline Workload workload_of(const NamedModel& model) {
  const auto build = [model] {
    torch::manual_seed(5);
    return model.build();
  };
  const auto loss = [](Module& called, int part, int parts, int64_t step) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(step));
    const auto rows = at::randint(0, 60, {12, kContext}, generator, at::kLong).chunk(parts)[part];
    return language_model_loss(called, rows.slice(1, 0, -1), rows.slice(1, 1));
  };
  return {build, loss};
}

}  // namespace fsdp
