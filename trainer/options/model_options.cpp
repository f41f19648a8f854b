#include <base/plain_error.h>
#include <base/text.h>
#include <command_line/command_line.h>
#include <command_line/config_file.h>
#include <exchange/hugging_face_config.h>
#include <exchange/hugging_face_folder.h>
#include <nn/models.h>
#include <options/groups.h>
#include <options/pattern_check.h>
#include <state/checkpoint.h>
#include <state/folder_kind.h>
#include <strategies/build_model.h>
#include <strategies/run_data.h>
#include <strategies/vocabulary.h>

#include <variant>

namespace fsdp {
namespace {

const std::string kKind = "hf:";

// Adds the option --model.
void add_name_option(CLI::App& app, TrainConfig& config) {
  const auto take = [&config](const std::string& text) {
    config.model.name = model_name(model_shape(text));
  };
  std::string names;
  for (const std::string& name : model_names())
    names += (names.empty() ? "" : ", ") + name;
  app.add_option_function<std::string>(
         "--model", take,
         names +
             ", a GPT-2 with dropout, such as gpt2-36m:dropout=0.1, or sizes, such as "
             "llama:vocabulary=256,... (docs/hugging_face.md) (default: small, or the model of "
             "--init or --resume)")
      ->type_name("NAME");
}

const std::string kUsualTarget = "(q_proj|v_proj|c_attn)$";

void add_lora_options(CLI::App& app, ModelConfig& model) {
  add_number(app, "--lora", model.lora, NumberRange<int64_t>{1, 1 << 16},
             "rank of adapters, which are trained in place of all other parameters (low-rank "
             "adaptation) (default: no adapters)");
  add_number(app, "--lora-alpha", model.lora_alpha, positive_up_to(1e6),
             "alpha / rank is the factor of what an adapter adds (default: the rank)");
  app.add_option("--lora-target", model.lora_target,
                 "layers with adapters: a regular expression that matches their names (default: " +
                     kUsualTarget + ")");
}

void resolve_lora(TrainConfig& config) {
  ModelConfig& model = config.model;
  if (model.lora == 0) return;
  if (model.lora_alpha == 0) model.lora_alpha = static_cast<double>(model.lora);
  if (model.lora_target.empty()) model.lora_target = kUsualTarget;
}

}  // namespace

void add_init_option(CLI::App& app, std::string& folder, const InitUse& use) {
  const auto take = [&folder, option = use.checkpoint_option](const std::string& text) {
    const bool has_kind = text.starts_with(kKind);
    const std::string path = has_kind ? text.substr(kKind.size()) : text;
    const FolderKind kind = kind_of_folder(path);
    if (kind == FolderKind::checkpoint)
      throw UsageError("--init " + text + ": " + path +
                       " is a checkpoint, not a Hugging Face folder; give " + option + ' ' + path +
                       ", or make a Hugging Face folder of it with ./fsdp export --format hf");
    if (!has_kind || path.empty())
      throw UsageError("--init " + text + ": takes hf:FOLDER" +
                       (kind == FolderKind::hugging_face ? "; give --init " + kKind + path : ""));
    folder = path;
  };
  app.add_option_function<std::string>(
         "--init", take,
         "the parameters of a " + kHuggingFaceModels +
             " model that Hugging Face's transformers or ./fsdp export has written "
             "(docs/hugging_face.md) (default: " +
             use.default_model + ")")
      ->type_name("hf:FOLDER");
}

void add_model_options(CLI::App& app, TrainConfig& config) {
  add_name_option(app, config);
  add_number(app, "--vocabulary", config.model.vocabulary, NumberRange<int64_t>{1, 1 << 24},
             "number of token ids of the model (default: its own; at least 256 for text)");
  add_init_option(app, config.model.init,
                  {.default_model = "random ones", .checkpoint_option = "--resume"});
  app.add_option("--freeze", config.model.freeze,
                 "parameters that are not trained: a regular expression that matches their names "
                 "(default: none)");
  add_lora_options(app, config.model);
}

void check_lora(const CLI::App& app, const TrainConfig& config) {
  check_pattern("--freeze", config.model.freeze);
  check_pattern("--lora-target", config.model.lora_target);
  if (config.model.lora > 0 && !config.model.freeze.empty())
    throw UsageError("--freeze and --lora: give one of them; --lora freezes all but the adapters");
  for (const char* option : {"--lora-alpha", "--lora-target"})
    if (config.model.lora == 0 && app.count(option) > 0)
      throw UsageError(std::string(option) + ": needs --lora");
  if (config.model.lora == 0 && config.model.freeze.empty()) return;
  const ModelShape shape = model_shape(config.model.name);
  std::vector<std::string> parameters;
  for (const HuggingFaceTensor& tensor : hugging_face_tensors(shape))
    parameters.push_back(tensor.own.name);
  try {
    const bool tied = std::visit([](const auto& options) { return options.tied_head; }, shape);
    if (config.model.lora > 0)
      check_lora_target(config.model.lora_target, linear_layers(shape), tied);
    if (!config.model.freeze.empty()) check_freeze(config.model.freeze, parameters);
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
}

// A run that continues from a checkpoint has its parameters from there. So --init has no effect if
// an earlier start of the same command needed it (--resume auto), or the saved options of the run
// that is continued (--config).
void leave_out_init_of_earlier_start(const CLI::App& app, TrainConfig& config) {
  const CheckpointConfig& checkpoint = config.checkpoint;
  if (checkpoint.resume.empty()) return;
  if (checkpoint.auto_resume || !place_in_config(app, "--init").empty()) config.model.init.clear();
}

void resolve_model(const CLI::App& app, TrainConfig& config) {
  resolve_lora(config);
  leave_out_init_of_earlier_start(app, config);
  if (app.count("--model") > 0) return;
  try {
    if (!config.model.init.empty())
      config.model.name = model_name(read_hugging_face_config(config.model.init));
  } catch (const std::exception& error) {
    throw UsageError("--init " + kKind + config.model.init + ": " + plain_text(error));
  }
  if (config.checkpoint.resume.empty()) return;
  try {
    const std::string model =
        checkpoint_of_option("--resume", config.checkpoint.resume).text_in_run("model");
    if (!model.empty()) config.model.name = model_name(model_shape(model));
  } catch (const std::invalid_argument& error) {
    throw UsageError("--resume " + config.checkpoint.resume + ": " + one_line(plain_text(error)));
  } catch (const UsageError&) {
    throw;
  } catch (const std::exception& error) {
    throw UsageError("--resume " + plain_text(error));
  }
}

void check_init_option(const TrainConfig& config) {
  if (config.model.init.empty()) return;
  const std::string option = "--init " + kKind + config.model.init;
  if (!config.checkpoint.resume.empty())
    throw UsageError("--init and --resume: give one of them; the checkpoint has the parameters");
  ModelShape own = model_shape(config.model.name);
  std::visit([&](auto& options) { options.vocabulary = vocabulary_of(config); }, own);
  const bool more_ids = vocabulary_of(config) != model_info(config.model.name).vocabulary;
  const std::string name = config.model.name + (more_ids ? " on " + describe_data(config) : "");
  try {
    const std::string difference =
        difference_of_shapes(read_hugging_face_config(config.model.init), name, own);
    if (!difference.empty()) throw std::runtime_error(kConfigFile + " has " + difference);
    const HuggingFaceFolder folder(config.model.init);
  } catch (const std::exception& error) {
    throw UsageError(option + ": " + plain_text(error));
  }
}

}  // namespace fsdp
