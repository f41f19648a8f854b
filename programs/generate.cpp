#include <base/whole_file.h>
#include <command_line/command_line.h>
#include <exchange/hugging_face_folder.h>
#include <exchange/saved_adapters.h>
#include <nn/generate.h>
#include <nn/models.h>
#include <optim/shard_layout.h>
#include <options/groups.h>
#include <state/checkpoint.h>
#include <state/checkpoint_folder.h>
#include <state/safetensors.h>
#include <state/saved_tensors.h>
#include <strategies/build_model.h>
#include <strategies/vocabulary.h>
#include <tokenizer/tokenizer.h>
#include <tokenizer/tokenizer_folder.h>
#include <tokenizer/utf8_stream.h>

#include <cstdio>
#include <filesystem>

// The program of ./fsdp generate: continues the text of --prompt with a trained model. A token is a
// byte, or a token of a Hugging Face tokenizer.

namespace fsdp {
namespace {

// Number of token ids if there is no tokenizer: then each token is a byte of text.
constexpr int64_t kBytes = 256;
// The value of --tokenizer that makes each byte a token.
const std::string kBytesAreTokens = "bytes";

struct Settings {
  std::string checkpoint, init, prompt, tokenizer, logits;
  int64_t tokens{200};
  int64_t threads{1};
  bool ignore_eos{};
  std::optional<double> temperature;
  uint64_t seed{42};
};

// Throws UsageError if the file of --logits would replace a file of the model or of the tokenizer,
// or would lie in the folder of --init or in a checkpoint, where all files belong to the model.
void check_logits(const Settings& settings) {
  const std::string& path = settings.logits;
  if (path.empty()) return;
  check_output("--logits", path, reason_not_to_write(path));
  const auto refuse = [&](const std::string& what) {
    throw UsageError("--logits " + path + ": " + what + "; give another file");
  };
  if (!settings.init.empty() && lies_below(path, settings.init))
    refuse("lies in " + settings.init + ", the folder of the model");
  std::string tokenizer = settings.tokenizer;
  if (!settings.checkpoint.empty()) {
    const std::string saved = find_checkpoint(settings.checkpoint).folder;
    const std::string folder = checkpoint_in_which_lies(path, saved);
    if (!folder.empty()) refuse("lies in " + folder + ", which is a checkpoint");
    if (tokenizer.empty()) tokenizer = tokenizer_beside(saved);
  }
  if (!tokenizer.empty() && tokenizer != kBytesAreTokens &&
      would_replace_tokenizer(path, tokenizer))
    refuse("is the tokenizer, or a file that belongs to it");
}

Settings parse(int argc, char** argv) {
  Settings settings;
  CLI::App app("Continues a text with a model.", "fsdp generate");
  app.get_formatter()->column_width(34);
  app.add_option("--checkpoint", settings.checkpoint,
                 "a checkpoint, or a folder of checkpoints, of which the latest is used");
  add_advice(app, "--resume", "--checkpoint takes a checkpoint");
  add_advice(app, "--model", "--checkpoint or --init names the model");
  add_init_option(app, settings.init,
                  {.default_model = "that of --checkpoint", .checkpoint_option = "--checkpoint"});
  app.add_option("--prompt", settings.prompt, "the text to continue")->required();
  app.add_option(
      "--tokenizer", settings.tokenizer,
      "a tokenizer.json, or a folder that has one; bytes: each token is a byte (default: "
      "the tokenizer.json in the folder of the model, if there is one, otherwise bytes)");
  add_number(app, "--tokens", settings.tokens, NumberRange<int64_t>{0, kMany},
             "tokens to add, at most (default 200)");
  app.add_flag("--ignore-eos", settings.ignore_eos,
               "also continue after the model's end-of-text token (eos_token_id in its "
               "generation_config.json or config.json, or eos_token of the tokenizer) (default: "
               "with a tokenizer the text ends there, unless --logits is given)");
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
    if (!settings.checkpoint.empty()) checkpoint_of_option("--checkpoint", settings.checkpoint);
    check_logits(settings);
    if (settings.prompt.empty()) throw UsageError("--prompt: needs at least one byte");
  });
  if (app.count("--seed") > 0 && !settings.temperature)
    std::fprintf(stderr, "fsdp generate: --seed has no effect without --temperature\n");
  return settings;
}

struct Loaded {
  std::shared_ptr<Module> model;
  int64_t context, vocabulary;
  std::string tokenizer;  // path of the model's tokenizer.json; "": each token is a byte
};

// Returns the path of the tokenizer.json in the folder of the checkpoint. Returns "" if there is
// none, or if the model was trained on text, so that its tokens are bytes.
// Throws std::runtime_error if the model was trained on other data than text or token ids; if it
// was trained on text and --tokenizer names a tokenizer; or if it was trained on token ids, the
// folder has no tokenizer.json, and --tokenizer is not given.
std::string tokenizer_of(const Checkpoint& checkpoint, const Settings& settings) {
  const std::string recipe = checkpoint.text_in_run("recipe");
  const bool given = !settings.tokenizer.empty() && settings.tokenizer != kBytesAreTokens;
  if (recipe == to_string(DataKind::text)) {
    if (given)
      throw std::runtime_error(checkpoint.folder +
                               ": was trained on text, so its tokens are bytes; "
                               "leave out --tokenizer");
    return "";
  }
  if (recipe != to_string(DataKind::tokens))
    throw std::runtime_error(checkpoint.folder + ": was trained on " + recipe +
                             " data, not on text");
  const std::string own = tokenizer_beside(checkpoint.folder);
  if (own.empty() && settings.tokenizer.empty())
    throw std::runtime_error(checkpoint.folder +
                             ": was trained on token ids; give --tokenizer, the "
                             "one that made them");
  return own;
}

Loaded checkpoint_at(const Settings& settings) {
  const SavedParameters saved = open_parameters(settings.checkpoint);
  const std::string tokenizer = tokenizer_of(saved.checkpoint, settings);
  TrainConfig config;
  config.model.name = saved.checkpoint.text_in_run("model");
  config.model.vocabulary = saved.checkpoint.number_in_run("/vocabulary").value_or(0);
  ModelShape shape = model_shape(config.model.name);
  std::visit([&](auto& options) { options.vocabulary = vocabulary_of(config); }, shape);
  // Compares the names and shapes of the saved parameters with those of the model before the model
  // is built, because the file may name a model that does not fit into memory.
  if (without_adapters(saved.parameters) != parameters_of(hugging_face_tensors(shape)))
    throw std::runtime_error(saved.checkpoint.folder + ": has other parameters than " +
                             config.model.name);
  Loaded loaded{build_model(config), model_info(config.model.name).context, vocabulary_of(config),
                tokenizer};
  const SavedAdapters adapters(saved);
  const auto own = without_adapters(saved.parameters);
  const auto parameters = distinct_parameters(*loaded.model);
  for (size_t i = 0; i < parameters.size(); ++i) {
    saved.read(own[i], parameters[i].tensor.detach());
    adapters.merge_into(own[i], parameters[i].tensor.detach());
  }
  return loaded;
}

Loaded hugging_face_at(const std::string& path) {
  const HuggingFaceFolder folder(path);
  folder.check_head(0, 1);
  const std::string name = model_name(folder.shape());
  const ModelInfo info = model_info(name);
  Loaded loaded{make_model(name), info.context, info.vocabulary, tokenizer_in({path})};
  for (const auto& [name, tensor] : distinct_parameters(*loaded.model))
    folder.read({name, 0, tensor.numel(), tensor.detach().view({-1}), {}, {}, {}});
  return loaded;
}

// Converts the prompt into tokens, and the generated tokens into text.
class Text {
 public:
  // If `tokenizer` has no value, each token is a byte.
  explicit Text(std::optional<Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}

  // Returns the tokens of the prompt. Throws UsageError if an id is not below `vocabulary`, the
  // number of tokens that the model knows.
  std::vector<int64_t> tokens_of(const std::string& prompt, int64_t vocabulary) const {
    std::vector<int64_t> tokens;
    if (tokenizer_) tokens = tokenizer_->encode(prompt);
    if (!tokenizer_)
      for (const char byte : prompt)
        tokens.push_back(static_cast<unsigned char>(byte));
    for (size_t place = 0; place < tokens.size(); ++place)
      if (tokens[place] >= vocabulary)
        throw UsageError("--prompt: " + std::string(tokenizer_ ? "token " : "byte ") +
                         std::to_string(place) + " is " + std::to_string(tokens[place]) +
                         ", and the model has " + std::to_string(vocabulary) + " ids" +
                         (tokenizer_ ? "; give --tokenizer, that of the model" : ""));
    return tokens;
  }

  bool has_tokenizer() const { return tokenizer_.has_value(); }
  // Returns the number of token ids: every id is below it.
  int64_t ids() const { return tokenizer_ ? tokenizer_->size() : kBytes; }

  // text_of() returns the characters that `token` completes: the bytes of a character may be in
  // several tokens. end() returns a replacement for a character that is still incomplete.
  std::string text_of(int64_t token) {
    if (!tokenizer_) return {static_cast<char>(token)};
    return complete_.add(tokenizer_->bytes_of(token));
  }
  std::string end() { return complete_.end(); }

  // Returns the id of the token whose text is exactly `text`; no value if there is no such token,
  // or no tokenizer.
  std::optional<int64_t> token_of(const std::string& text) const {
    if (!tokenizer_ || text.empty()) return std::nullopt;
    const auto tokens = tokenizer_->encode(text, Tokenizer::Template::leave_out);
    return tokens.size() == 1 ? std::optional(tokens.front()) : std::nullopt;
  }

 private:
  std::optional<Tokenizer> tokenizer_;
  Utf8Stream complete_;
};

void write_logits(const std::string& path, const at::Tensor& logits) {
  SafetensorsWriter writer(path, {{"logits", at::kFloat, logits.sizes().vec()}});
  writer.write(logits.contiguous());
  writer.close();
}

// Warns on stderr if a model of --init has no tokenizer and --tokenizer is not given: each byte of
// the prompt then is a token, but the model was probably trained with other tokens.
void say_if_bytes_are_assumed(const Settings& settings, const Loaded& loaded) {
  if (settings.init.empty() || !settings.tokenizer.empty() || !loaded.tokenizer.empty() ||
      loaded.vocabulary == kBytes)
    return;
  std::fprintf(stderr,
               "fsdp generate: %s has no tokenizer.json, so each token is taken for a byte; copy "
               "that of the model into the folder, or give --tokenizer\n",
               settings.init.c_str());
}

// Returns the tokenizer of --tokenizer or, if the option is not given, the one that belongs to the
// model; nothing if each token is a byte.
std::optional<Tokenizer> tokenizer_for(const Settings& settings, const Loaded& loaded) {
  if (settings.tokenizer == kBytesAreTokens) return std::nullopt;
  if (!settings.tokenizer.empty())
    return naming_option("--tokenizer", [&] { return Tokenizer(settings.tokenizer); });
  if (loaded.tokenizer.empty()) return std::nullopt;
  return Tokenizer(loaded.tokenizer);
}

// Returns the end-of-text tokens that the folder of --init names or, if it names none, those that
// the tokenizer's folder names. Returns no token if each token is a byte.
std::vector<int64_t> known_end_tokens(const Settings& settings, const Loaded& loaded,
                                      const Text& text) {
  const std::string path = settings.tokenizer.empty() ? loaded.tokenizer : settings.tokenizer;
  if (!text.has_tokenizer()) return {};
  const std::string of_tokenizer = std::filesystem::is_directory(path)
                                       ? path
                                       : std::filesystem::absolute(path).parent_path().string();
  for (const std::string& folder : {settings.init, of_tokenizer}) {
    if (folder.empty()) continue;
    if (const auto tokens = end_tokens_in(folder); !tokens.empty()) return tokens;
    if (const auto token = text.token_of(end_text_in(folder))) return {*token};
  }
  return {};
}

// Returns the tokens after which the generated text ends: none with --ignore-eos or with --logits,
// else known_end_tokens().
std::vector<int64_t> end_tokens_of(const Settings& settings, const Loaded& loaded,
                                   const Text& text) {
  if (settings.ignore_eos || !settings.logits.empty()) return {};
  return known_end_tokens(settings, loaded, text);
}

// Prints a note on stderr if --ignore-eos is given and the text would not end earlier without it.
void say_if_ignore_eos_is_unused(const Settings& settings, const Loaded& loaded, const Text& text) {
  if (!settings.ignore_eos) return;
  std::string reason;
  if (settings.tokenizer == kBytesAreTokens) {
    reason = " with --tokenizer bytes";
  } else if (!settings.logits.empty()) {
    reason = " with --logits";
  } else if (!text.has_tokenizer()) {
    reason = ": the tokens of the model are bytes, and none of them ends a text";
  } else {
    try {
      if (!known_end_tokens(settings, loaded, text).empty()) return;
    } catch (const std::runtime_error&) {
      return;  // --ignore-eos is there for a file that can't be read, too
    }
    reason = ": no file of the model or of its tokenizer names an end-of-text token";
  }
  std::fprintf(stderr, "fsdp generate: --ignore-eos has no effect%s\n", reason.c_str());
}

int generate_text(const Settings& settings) {
  at::set_num_threads(static_cast<int>(settings.threads));
  const Loaded loaded =
      settings.checkpoint.empty()
          ? naming_option("--init", [&] { return hugging_face_at(settings.init); })
          : checkpoint_at(settings);
  Text text(tokenizer_for(settings, loaded));
  loaded.model->eval();
  const auto tokens = text.tokens_of(settings.prompt, loaded.vocabulary);
  say_if_bytes_are_assumed(settings, loaded);
  say_if_ignore_eos_is_unused(settings, loaded, text);
  if (!settings.logits.empty())
    write_logits(settings.logits, logits_of(*loaded.model, tokens, loaded.context));
  const auto print = [](const std::string& part) {
    std::fwrite(part.data(), 1, part.size(), stdout);
    std::fflush(stdout);
  };
  const GenerateOptions options{loaded.context, text.ids(), settings.temperature, settings.seed,
                                end_tokens_of(settings, loaded, text)};
  print(settings.prompt);
  const int64_t count = generate(*loaded.model, tokens, settings.tokens, options,
                                 [&](int64_t token) { print(text.text_of(token)); });
  print(text.end() + "\n");
  if (count == 0 && settings.tokens > 0)
    std::fprintf(stderr,
                 "fsdp generate: the first token is already the model's end-of-text token; "
                 "--ignore-eos continues after it\n");
  return 0;
}

}  // namespace
}  // namespace fsdp

int main(int argc, char** argv) {
  using namespace fsdp;
  return run_program("fsdp generate", [&] { return generate_text(parse(argc, argv)); });
}
