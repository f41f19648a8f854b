#include <nn/models.h>
#include <strategies/vocabulary.h>

#include <algorithm>

namespace fsdp {

int64_t vocabulary_of(const TrainConfig& config) {
  if (config.vocabulary > 0) return config.vocabulary;
  const int64_t own = model_info(config.model).vocabulary;
  if (config.data != "text" && config.data != "modular") return own;
  return std::max(own, config.data == "modular" ? config.modulus + 1 : 256);  // text is bytes
}

}  // namespace fsdp
