#include <base/whole_file.h>
#include <command_line/command_line.h>
#include <exchange/hugging_face_folder.h>
#include <nn/generate.h>
#include <nn/models.h>
#include <optim/shard_layout.h>
#include <options/groups.h>
#include <state/safetensors.h>
#include <state/saved_tensors.h>
#include <strategies/build_model.h>
#include <strategies/vocabulary.h>

#include <cstdio>

// Continues a text with a model that was trained on text. A token is a byte.

namespace fsdp {
namespace {

constexpr int64_t kBytes = 256;  // token ids below this are bytes of text

struct Settings {
  std::string checkpoint, init, prompt, logits;
  int64_t tokens{200};
  int64_t threads{1};
  std::optional<double> temperature;
  uint64_t seed{42};
};

Settings parse(int argc, char** argv) {
  Settings settings;
  CLI::App app("Continues a text with a model that was trained on text.", "fsdp generate");
  app.get_formatter()->column_width(34);
  app.add_option("--checkpoint", settings.checkpoint,
                 "a checkpoint, or a folder of checkpoints, of which the latest is used");
  add_init_option(app, settings.init);
  app.add_option("--prompt", settings.prompt, "the text to continue")->required();
  add_number(app, "--tokens", settings.tokens, NumberRange<int64_t>{0, kMany},
             "tokens to add, each a byte (default 200)");
  add_number(
      app, "--temperature", settings.temperature, positive_up_to(1e6),
      "draw each token at random: near 0 almost always a likely one, at 1 with the probabilities "
      "of the model (default: always the most likely token)");
  add_number(app, "--seed", settings.seed,
             NumberRange<uint64_t>{0, std::numeric_limits<uint64_t>::max()},
             "seed of the drawn tokens (default 42)");
  add_number(app, "--threads", settings.threads, NumberRange<int64_t>{1, 1024},
             "threads (default 1)");
  app.add_option("--logits", settings.logits,
                 "also write the logits of the prompt to this safetensors file");
  parse_command_line(app, {argv + 1, argv + argc}, [&] {
    if (settings.checkpoint.empty() == settings.init.empty())
      throw UsageError("give --checkpoint or --init, one of them");
    if (!settings.logits.empty())
      check_output("--logits", settings.logits, reason_not_to_write(settings.logits));
    if (settings.prompt.empty()) throw UsageError("--prompt: needs at least one byte");
  });
  if (app.count("--seed") > 0 && !settings.temperature)
    std::fprintf(stderr, "fsdp generate: --seed has no effect without --temperature\n");
  return settings;
}

struct Loaded {
  std::shared_ptr<Module> model;
  int64_t context, vocabulary;
};

Loaded checkpoint_at(const std::string& path) {
  const SavedParameters saved = open_parameters(path);
  const std::string recipe = saved.checkpoint.text_in_run("recipe");
  if (recipe != "text")
    throw std::runtime_error(saved.checkpoint.folder + ": was trained on " + recipe +
                             " data, not on text");
  TrainConfig config;
  config.model.name = saved.checkpoint.text_in_run("model");
  ModelShape shape = model_shape(config.model.name);
  std::visit([&](auto& options) { options.vocabulary = vocabulary_of(config); }, shape);
  // This check comes before the model is built, because the file may name a model that does not fit
  // into memory.
  if (saved.parameters != parameters_of(hugging_face_tensors(shape)))
    throw std::runtime_error(saved.checkpoint.folder + ": has other parameters than " +
                             config.model.name);
  Loaded loaded{build_model(config), model_info(config.model.name).context, vocabulary_of(config)};
  const auto parameters = distinct_parameters(*loaded.model);
  for (size_t i = 0; i < parameters.size(); ++i)
    saved.read(saved.parameters[i], parameters[i].tensor.detach());
  return loaded;
}

Loaded hugging_face_at(const std::string& path) {
  const HuggingFaceFolder folder(path);
  folder.check_head(0, 1);
  const std::string name = model_name(folder.shape());
  const ModelInfo info = model_info(name);
  Loaded loaded{make_model(name), info.context, info.vocabulary};
  for (const auto& [name, tensor] : distinct_parameters(*loaded.model))
    folder.read({name, 0, tensor.numel(), tensor.detach().view({-1}), {}, {}, {}});
  return loaded;
}

std::vector<int64_t> tokens_of(const std::string& prompt, int64_t vocabulary) {
  std::vector<int64_t> tokens;
  for (const char byte : prompt) {
    tokens.push_back(static_cast<unsigned char>(byte));
    if (tokens.back() >= vocabulary)
      throw UsageError("--prompt: has the byte " + std::to_string(tokens.back()) +
                       ", and the model knows those below " + std::to_string(vocabulary));
  }
  return tokens;
}

void write_logits(const std::string& path, const at::Tensor& logits) {
  SafetensorsWriter writer(path, {{"logits", at::kFloat, logits.sizes().vec()}});
  writer.write(logits.contiguous());
  writer.close();
}

int generate_text(const Settings& settings) {
  at::set_num_threads(static_cast<int>(settings.threads));
  const auto [model, context, vocabulary] = settings.checkpoint.empty()
                                                ? hugging_face_at(settings.init)
                                                : checkpoint_at(settings.checkpoint);
  model->eval();
  const auto tokens = tokens_of(settings.prompt, vocabulary);
  if (!settings.logits.empty()) write_logits(settings.logits, logits_of(*model, tokens, context));
  const auto print = [](const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  print(settings.prompt);
  const GenerateOptions options{context, kBytes, settings.temperature, settings.seed};
  generate(*model, tokens, settings.tokens, options,
           [&](int64_t token) { print(std::string(1, static_cast<char>(token))); });
  print("\n");
  return 0;
}

}  // namespace
}  // namespace fsdp

int main(int argc, char** argv) {
  using namespace fsdp;
  return run_program("fsdp generate", [&] { return generate_text(parse(argc, argv)); });
}
