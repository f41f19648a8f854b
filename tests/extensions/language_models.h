#pragma once

#include <nn/gpt2.h>
#include <nn/layers.h>
#include <nn/models.h>
#include <nn/transformer_lm.h>
#include <strategies/model_device.h>
#include <strategies/workload.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

// Small language models whose embedding and head have any size.
namespace fsdp {

constexpr int64_t kWidth = 8, kContext = 12;
// A TransformerBlock has 560 elements, as many as an embedding of 70 rows.
constexpr int64_t kRowsOfABlock = 70;

inline std::shared_ptr<Module> untied_model(int64_t vocabulary) {
  return std::make_shared<TransformerLM>(
      TransformerLMOptions{vocabulary, kContext, kWidth, 3, 2, 12});
}

inline std::shared_ptr<Module> tied_model(int64_t vocabulary) {
  return std::make_shared<GPT2>(GPT2Options{vocabulary, kContext, kWidth, 3, 2, 12});
}

struct NamedModel {
  std::string name;
  std::function<std::shared_ptr<Module>()> build;
};

inline std::vector<NamedModel> language_models() {
  return {{"small vocabulary", [] { return untied_model(kRowsOfABlock - 1); }},
          {"large vocabulary", [] { return untied_model(kRowsOfABlock); }},
          {"tied, large vocabulary", [] { return tied_model(200); }}};
}

// Returns a workload that trains `model` on 12 rows of random tokens in each step. The rows can be
// divided into 1, 2, 3, 4, 6 or 12 microbatches.
inline Workload workload_of(const NamedModel& model) {
  const auto build = [model] {
    torch::manual_seed(5);
    return model.build();
  };
  const auto loss = [](Module& called, int microbatch, int microbatches, int64_t step) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(step));
    const auto batch = at::randint(0, 60, {12, kContext}, generator, at::kLong);
    const auto rows = to_device_of(called, batch.chunk(microbatches)[microbatch]);
    return language_model_loss(called, rows.slice(1, 0, -1), rows.slice(1, 1));
  };
  return {build, loss};
}

}  // namespace fsdp
