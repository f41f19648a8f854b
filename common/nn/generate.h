#pragma once

#include <nn/module.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace fsdp {

struct GenerateOptions {
  int64_t context;  // the longest sequence that the model takes, in tokens
  int64_t ids;      // tokens with an id >= this one are not generated
  // The temperature of the draws; no value: generate() draws nothing and always takes the most
  // likely token.
  std::optional<double> temperature{};
  uint64_t seed{42};                  // seed of the draws; unused without a temperature
  std::vector<int64_t> end_tokens{};  // generation stops before the first of these tokens
};

// Returns logits [n, vocabulary] for the tokens that follow each of the last n = min(context,
// tokens.size()) tokens.
at::Tensor logits_of(Module& model, const std::vector<int64_t>& tokens, int64_t context);

// Continues `tokens`, which must not be empty, by `count` tokens, or by fewer if an end token
// comes. Calls `visit` with each new token; not with an end token. Returns the number of new
// tokens. With a temperature T it draws from softmax(logits / T); the same seed gives the same
// tokens. Does not use the default generator.
int64_t generate(Module& model, std::vector<int64_t> tokens, int64_t count,
                 const GenerateOptions& options, const std::function<void(int64_t token)>& visit);

}  // namespace fsdp
