#include <nn/models.h>
#include <strategies/vocabulary.h>

#include <algorithm>

namespace fsdp {

int64_t vocabulary_of(const TrainConfig& config) {
  if (config.model.vocabulary > 0) return config.model.vocabulary;
  const int64_t own = model_info(config.model.name).vocabulary;
  if (config.data.kind != DataKind::text && config.data.kind != DataKind::modular) return own;
  return std::max(
      // Text is bytes, which have 256 ids.
      own, config.data.kind == DataKind::modular ? config.data.modulus + 1 : 256);
}

}  // namespace fsdp
