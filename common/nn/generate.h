#pragma once

#include <nn/module.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace fsdp {

struct GenerateOptions {
  int64_t context;                      // longest sequence that the model takes
  int64_t ids;                          // ids from this one on are not drawn
  std::optional<double> temperature{};  // none: the most likely token, always
  uint64_t seed{42};                    // of what is drawn with a temperature
};

// The logits [n, vocabulary] of the last tokens, n = context at most, each of what follows it.
at::Tensor logits_of(Module& model, const std::vector<int64_t>& tokens, int64_t context);

// Continues `tokens`, at least one, by `count` tokens. Calls `visit` with each as it comes. With a
// temperature T it draws from softmax(logits / T); the same seed gives the same tokens. Does not
// touch the default generator.
void generate(Module& model, std::vector<int64_t> tokens, int64_t count,
              const GenerateOptions& options, const std::function<void(int64_t token)>& visit);

}  // namespace fsdp
