#include <config/words.h>

#include <array>
#include <cstddef>

namespace fsdp {

const char* to_string(Mode mode) {
  constexpr std::array words{"single", "ddp", "fsdp"};
  return words.at(static_cast<size_t>(mode));
}

const char* to_string(DataKind kind) {
  constexpr std::array words{"text", "tokens", "modular", "pattern", "published"};
  return words.at(static_cast<size_t>(kind));
}

const char* to_string(ReduceGradients when) {
  constexpr std::array words{"each", "last"};
  return words.at(static_cast<size_t>(when));
}

const char* to_string(LrDecay decay) {
  constexpr std::array words{"", "cosine", "linear"};
  return words.at(static_cast<size_t>(decay));
}

const char* to_string(OnLostHost what) {
  constexpr std::array words{"end", "continue"};
  return words.at(static_cast<size_t>(what));
}

const char* to_string(OptimizerOptions::Kind optimizer) {
  constexpr std::array words{"adamw", "sgd", "muon"};
  return words.at(static_cast<size_t>(optimizer));
}

}  // namespace fsdp
