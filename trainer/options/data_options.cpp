#include <command_line/command_line.h>
#include <command_line/commit.h>
#include <command_line/usage.h>
#include <data/dataset.h>
#include <launch/launched.h>
#include <nn/models.h>
#include <optim/shard_layout.h>
#include <options/choices.h>
#include <options/groups.h>
#include <strategies/vocabulary.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace fsdp {
namespace {

// The settings of --recipe modular. With these settings and the default seed, the model makes no
// mistake on the held-out pairs after 400 steps.
struct ModularRecipe {
  static constexpr const char* kModel = "gpt2-tiny";
  static constexpr int64_t kModulus = 31, kSteps = 1000, kBatch = 256, kEvalEvery = 100;
  static constexpr double kLearningRate = 2e-3, kWeightDecay = 0.5, kClip = 1;
};

void resolve_modular(const CLI::App& app, TrainConfig& config, const GivenData& given) {
  if (app.count("--seq") > 0) throw UsageError("--seq: a row of modular addition has 3 tokens");
  config.data.modulus = given.modulus.value_or(ModularRecipe::kModulus);
  if (!given.recipe) return;
  const auto unless_given = [&](const char* option, auto& value, const auto& of_recipe) {
    if (app.count(option) == 0) value = of_recipe;
  };
  unless_given("--model", config.model.name, ModularRecipe::kModel);
  unless_given("--eval-every", config.data.eval_every, ModularRecipe::kEvalEvery);
  unless_given("--clip", config.optimizer.clip, ModularRecipe::kClip);
  unless_given("--weight-decay", config.optimizer.weight_decay, ModularRecipe::kWeightDecay);
}

TokenFile token_file(const std::string& path) {
  return naming_option("--tokens", [&] { return TokenFile(path); });
}

void require_row(const std::string& path, int64_t seq, int64_t ids, const std::string& what) {
  if (ids > seq) return;
  throw UsageError("--tokens " + path + ": a row takes " + std::to_string(seq + 1) +
                   " tokens (--seq " + std::to_string(seq) + "), and only " + std::to_string(ids) +
                   " are " + what);
}

void check_text(const TrainConfig& config) {
  for (const std::string& path : config.data.text) {
    std::error_code unknown;
    if (!std::filesystem::exists(path, unknown) && !unknown)
      throw UsageError("--text " + path + ": no such file");
    const bool folder = std::filesystem::is_directory(path, unknown);
    if (!unknown && !folder && !std::filesystem::is_regular_file(path, unknown))
      throw UsageError("--text " + path + ": is neither a plain file nor a folder");
    if (access(path.c_str(), folder ? R_OK | X_OK : R_OK) != 0)
      throw UsageError("--text " + path + ": " + std::strerror(errno));
  }
}

// Throws UsageError if the token ids of --tokens that are trained on, or those that are held out
// for --eval-every, are too few for one row (--seq).
void check_tokens(const TrainConfig& config) {
  if (config.data.kind != DataKind::tokens) return;
  const std::string& path = config.data.tokens.front();
  const int64_t all = token_file(path).size;
  const bool two = config.data.tokens.size() > 1;
  const int64_t held_out = two ? token_file(config.data.tokens.back()).size : all / 10;
  require_row(path, config.training.seq, two ? all : all - held_out, "trained on");
  if (config.data.eval_every > 0)
    require_row(config.data.tokens.back(), config.training.seq, held_out, "held out");
}

// The most ids of a file that are checked before the run: reading them takes about a second. An id
// after them that the model does not have ends the run when a rank reads it.
constexpr int64_t kMostCheckedIds = int64_t{1} << 29;

}  // namespace

void check_ids_of_data(const TrainConfig& config) {
  const auto self = launched_rank();
  if (self && self->rank != 0) return;
  const int64_t vocabulary = vocabulary_of(config);
  if (config.data.kind == DataKind::modular && config.data.modulus >= vocabulary)
    throw UsageError("--vocabulary " + std::to_string(vocabulary) + ": addition modulo " +
                     std::to_string(config.data.modulus) + " has " +
                     std::to_string(config.data.modulus + 1) + " ids; give that many or more");
  for (const std::string& path : config.data.tokens)
    naming_option("--tokens", [&] { check_token_ids(path, vocabulary, kMostCheckedIds); });
  if (config.data.kind == DataKind::text)
    for (const std::string& path : config.data.text)
      naming_option("--text", [&] { check_bytes_of_text(path, vocabulary); });
}

void add_data_options(CLI::App& app, TrainConfig& config, GivenData& given) {
  add_choice(app, "--recipe", given.recipe, choices_of({DataKind::published, DataKind::modular}),
             "data and settings together: published (random tokens, as in the published run) or "
             "modular (gpt2-tiny on --data modular, until it makes no mistake) (default: none)");
  add_choice(app, "--data", config.data.kind,
             choices_of({DataKind::text, DataKind::tokens, DataKind::modular, DataKind::pattern}),
             "what to train on: text, tokens, modular (a + b mod --modulus, a fifth of the pairs "
             "held out) or pattern (five tokens that repeat, with noise) (default text)");
  add_number(app, "--modulus", given.modulus, NumberRange<int64_t>{3, 1000},
             "modulus of --data modular (default 31)");
  app.add_option(
      "--text", config.data.text,
      "of --data text: files or folders (default: text of this repository); the last tenth is "
      "held out");
  app.add_option(
         "--tokens", config.data.tokens,
         "of --data tokens: a file of token ids, as nanoGPT or llm.c writes it, and a second "
         "one to hold out (default: the last tenth of the first one)")
      ->expected(1, 2)
      ->type_name("FILE");
  add_advice(
      app, "--tokenizer",
      "train takes token ids: make them with ./fsdp tokenize --tokenizer FOLDER --input TEXT "
      "--output FILE, and give --tokens FILE");
  add_number(
      app, "--eval-every", config.data.eval_every, NumberRange<int64_t>{1, kMany},
      "steps between evaluations, which print loss and accuracy on the data that is held out; "
      "there is one before the first step and one after the last step too (default: no "
      "evaluation)");
}

void resolve_data(const CLI::App& app, TrainConfig& config, const GivenData& given) {
  const bool recipe = given.recipe.has_value();
  if (recipe && !config.data.text.empty())
    throw UsageError("--recipe and --text: give one of them");
  if (recipe && app.count("--data") > 0) throw UsageError("--recipe and --data: give one of them");
  if (recipe) config.data.kind = *given.recipe;
  if (config.data.kind == DataKind::published && config.data.eval_every > 0)
    throw UsageError("--eval-every: --recipe published holds nothing out: its tokens are random");
  if (!config.data.tokens.empty() && !config.data.text.empty())
    throw UsageError("--text and --tokens: give one of them");
  if (config.data.kind != DataKind::text && !config.data.text.empty())
    throw UsageError(std::string("--text and --data ") + to_string(config.data.kind) +
                     ": give one of them");
  if (!config.data.tokens.empty() && config.data.kind != DataKind::tokens) {
    if (app.count("--data") > 0 || recipe) throw UsageError("--tokens: needs --data tokens");
    config.data.kind = DataKind::tokens;
  }
  if (config.data.kind == DataKind::tokens) {
    if (config.data.tokens.empty()) throw UsageError("--data tokens: needs --tokens FILE");
    for (const std::string& path : config.data.tokens)
      token_file(path);
  }
  if (config.data.kind == DataKind::modular) return resolve_modular(app, config, given);
  if (given.modulus) throw UsageError("--modulus: needs --data modular");
}

void resolve_text(TrainConfig& config) {
  if (config.data.kind == DataKind::text && config.data.text.empty())
    config.data.text = repository_text(source_root());
}

void check_data(const TrainConfig& config) {
  check_text(config);
  check_tokens(config);
}

Defaults defaults_of(const TrainConfig& config, const GivenData& given) {
  const ModelInfo& info = model_info(config.model.name);
  const int64_t seq =
      config.data.kind == DataKind::modular ? kModularSeq : std::min(info.seq, info.context);
  if (config.data.kind == DataKind::published) return {info.steps, info.batch, seq, info.lr};
  if (given.recipe == DataKind::modular)
    return {ModularRecipe::kSteps, round_up(ModularRecipe::kBatch, config.training.microbatches),
            seq, ModularRecipe::kLearningRate};
  // The defaults without a recipe are 100 steps, a small batch, which is a multiple of the number
  // of microbatches, and a learning rate at which small models learn.
  return {100, round_up(8, config.training.microbatches), seq, 1e-3};
}

}  // namespace fsdp
