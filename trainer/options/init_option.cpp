#include <command_line/command_line.h>
#include <exchange/gpt2_config.h>
#include <exchange/hugging_face_folder.h>
#include <nn/models.h>
#include <options/groups.h>
#include <strategies/build_model.h>
#include <strategies/data_of_run.h>

namespace fsdp {
namespace {

const std::string kKind = "hf:";

}  // namespace

void add_init_option(CLI::App& app, TrainConfig& config) {
  const auto take = [&config](const std::string& text) {
    if (!text.starts_with(kKind) || text == kKind)
      throw UsageError("--init " + text + ": takes hf:FOLDER");
    config.init = text.substr(kKind.size());
  };
  app.add_option_function<std::string>(
         "--init", take,
         "begin with the parameters of a GPT-2 that Hugging Face's transformers or ./fsdp export "
         "has written (docs/hugging_face.md)")
      ->type_name("hf:FOLDER");
}

void check_init_option(const TrainConfig& config) {
  if (config.init.empty()) return;
  const std::string option = "--init " + kKind + config.init;
  if (!config.resume.empty()) throw UsageError("--init and --resume: give one of them");
  auto own = gpt2_options(config.model);
  if (!own)
    throw UsageError(option + ": " + config.model + " is no GPT-2; give --model " + gpt2_names());
  own->vocabulary = vocabulary_of(config);
  try {
    const std::string difference =
        difference_of_sizes(read_gpt2_config(config.init), config.model, *own);
    if (!difference.empty()) throw std::runtime_error(kConfigFile + " has " + difference);
    const HuggingFaceFolder folder(config.init);
  } catch (const std::exception& error) {
    throw UsageError(option + ": " + error.what());
  }
}

}  // namespace fsdp
