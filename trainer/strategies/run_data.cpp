#include <strategies/run_data.h>
#include <strategies/vocabulary.h>

namespace fsdp {

std::shared_ptr<Dataset> make_dataset(const TrainConfig& config) {
  if (config.data.kind == DataKind::published)
    return make_published_dataset(vocabulary_of(config), config.training.seed);
  if (config.data.kind == DataKind::modular)
    return make_modular_dataset(config.data.modulus, config.training.seed);
  if (config.data.kind == DataKind::pattern)
    return make_pattern_dataset(vocabulary_of(config), config.training.seed);
  if (config.data.kind == DataKind::tokens)
    return make_token_dataset(config.data.tokens, vocabulary_of(config), config.training.seed);
  return std::make_shared<TextDataset>(text_of(config), config.training.seed);
}

Text text_of(const TrainConfig& config) {
  return config.data.text_content ? config.data.text_content : read_text_files(config.data.text);
}

std::string describe_data(const TrainConfig& config) {
  if (config.data.kind == DataKind::published) return "published recipe";
  if (config.data.kind == DataKind::modular)
    return "addition modulo " + std::to_string(config.data.modulus);
  return to_string(config.data.kind);
}

}  // namespace fsdp
