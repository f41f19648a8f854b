#include <strategies/run_data.h>
#include <strategies/vocabulary.h>

namespace fsdp {

std::shared_ptr<Dataset> make_dataset(const TrainConfig& config) {
  if (config.data == "published") return make_published_dataset(vocabulary_of(config), config.seed);
  if (config.data == "modular") return make_modular_dataset(config.modulus, config.seed);
  if (config.data == "pattern") return make_pattern_dataset(vocabulary_of(config), config.seed);
  if (config.data == "tokens")
    return make_token_dataset(config.tokens, vocabulary_of(config), config.seed);
  return std::make_shared<TextDataset>(text_of(config), config.seed);
}

Text text_of(const TrainConfig& config) {
  return config.text_content ? config.text_content : read_text_files(config.text);
}

std::string describe_data(const TrainConfig& config) {
  if (config.data == "published") return "published recipe";
  if (config.data == "modular") return "addition modulo " + std::to_string(config.modulus);
  return config.data;
}

}  // namespace fsdp
