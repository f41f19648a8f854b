#include <nn/models.h>
#include <strategies/build_model.h>
#include <strategies/vocabulary.h>
#include <trace/module_spans.h>

namespace fsdp {

std::shared_ptr<Module> build_model(const TrainConfig& config) {
  torch::manual_seed(config.training.seed);
  auto model = make_model(config.model.name, vocabulary_of(config));
  record_module_spans(*model);
  return model;
}

}  // namespace fsdp
