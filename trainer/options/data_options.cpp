#include <base/plain_error.h>
#include <command_line/command_line.h>
#include <command_line/usage.h>
#include <data/dataset.h>
#include <nn/models.h>
#include <optim/shard_layout.h>
#include <options/groups.h>

#include <algorithm>

namespace fsdp {
namespace {

// The settings of --recipe modular: with these and the default seed, no mistake is left after 400
// steps.
struct ModularRecipe {
  static constexpr const char* kModel = "gpt2-tiny";
  static constexpr int64_t kModulus = 31, kSteps = 1000, kBatch = 256, kEvalEvery = 100;
  static constexpr double kLearningRate = 2e-3, kWeightDecay = 0.5, kClip = 1;
};

void take_modular(const CLI::App& app, TrainConfig& config, const DataOptions& data) {
  if (app.count("--seq") > 0) throw UsageError("--seq: a row of modular addition has 3 tokens");
  config.modulus = data.modulus.value_or(ModularRecipe::kModulus);
  if (data.recipe.empty()) return;
  const auto unless_given = [&](const char* option, auto& value, const auto& of_recipe) {
    if (app.count(option) == 0) value = of_recipe;
  };
  unless_given("--model", config.model, ModularRecipe::kModel);
  unless_given("--eval-every", config.eval_every, ModularRecipe::kEvalEvery);
  unless_given("--clip", config.clip, ModularRecipe::kClip);
  unless_given("--weight-decay", config.optimizer.weight_decay, ModularRecipe::kWeightDecay);
}

TokenFile token_file(const std::string& path) {
  try {
    return TokenFile(path);
  } catch (const std::exception& error) {
    throw UsageError("--tokens " + plain_text(error));
  }
}

void require_row(const std::string& path, int64_t seq, int64_t ids, const std::string& what) {
  if (ids > seq) return;
  throw UsageError("--tokens " + path + ": a row takes " + std::to_string(seq + 1) +
                   " tokens (--seq " + std::to_string(seq) + "), and only " + std::to_string(ids) +
                   " are " + what);
}

}  // namespace

void check_tokens(const TrainConfig& config) {
  if (config.data != "tokens") return;
  const std::string& path = config.tokens.front();
  const int64_t all = token_file(path).size;
  const bool two = config.tokens.size() > 1;
  const int64_t held_out = two ? token_file(config.tokens.back()).size : all / 10;
  require_row(path, config.seq, two ? all : all - held_out, "trained on");
  if (config.eval_every > 0) require_row(config.tokens.back(), config.seq, held_out, "held out");
}

void add_data_options(CLI::App& app, TrainConfig& config, DataOptions& data) {
  add_choice(app, "--recipe", data.recipe, {"published", "modular"},
             "data and settings together. published: random tokens, as they were published; "
             "modular: gpt2-tiny on --data modular, until it makes no mistake");
  add_choice(app, "--data", config.data, {"text", "tokens", "modular", "pattern"},
             "text, tokens, modular (a + b mod --modulus, a fifth of the pairs held out) or "
             "pattern (five tokens again and again, with noise) (default text)");
  add_number(app, "--modulus", data.modulus, NumberRange<int64_t>{3, 1000},
             "of --data modular (default 31)");
  app.add_option("--text", config.text,
                 "files or folders (default: this repository's text); the last tenth is held out");
  app.add_option("--tokens", config.tokens,
                 "of --data tokens: nanoGPT's or llm.c's file of ids, and one to hold out "
                 "(default: the last tenth)")
      ->expected(1, 2)
      ->type_name("FILE");
  add_number(app, "--vocabulary", config.vocabulary, NumberRange<int64_t>{1, 1 << 24},
             "ids of the model (default: its own, and 256 for text)");
  add_number(app, "--eval-every", config.eval_every, NumberRange<int64_t>{1, kMany},
             "steps; after so many, and after the last, print loss and accuracy on what is held "
             "out (default: never)");
}

void take_data(const CLI::App& app, TrainConfig& config, const DataOptions& data) {
  const bool recipe = !data.recipe.empty();
  if (recipe && !config.text.empty()) throw UsageError("--recipe and --text: give one of them");
  if (recipe && app.count("--data") > 0) throw UsageError("--recipe and --data: give one of them");
  if (recipe) config.data = data.recipe;
  if (config.data == "published" && config.eval_every > 0)
    throw UsageError("--eval-every: --recipe published holds nothing out: its tokens are random");
  if (config.data != "text" && !config.text.empty())
    throw UsageError("--text and --data " + config.data + ": give one of them");
  if (!config.tokens.empty() && config.data != "tokens") {
    if (app.count("--data") > 0 || recipe) throw UsageError("--tokens: needs --data tokens");
    config.data = "tokens";
  }
  if (config.data == "tokens") {
    if (config.tokens.empty()) throw UsageError("--data tokens: needs --tokens FILE");
    for (const std::string& path : config.tokens)
      token_file(path);
  }
  if (config.data == "modular") return take_modular(app, config, data);
  if (data.modulus) throw UsageError("--modulus: needs --data modular");
}

Defaults defaults_of(const TrainConfig& config, const DataOptions& data) {
  const ModelInfo& info = model_info(config.model);
  const int64_t seq = config.data == "modular" ? kModularSeq : std::min(info.seq, info.context);
  if (config.data == "published") return {info.steps, info.batch, seq, info.lr};
  if (data.recipe == "modular")
    return {ModularRecipe::kSteps, round_up(ModularRecipe::kBatch, config.parts), seq,
            ModularRecipe::kLearningRate};
  // A small batch that every number of parts can cut, and a rate at which small models learn.
  return {100, round_up(8, config.parts), seq, 1e-3};
}

}  // namespace fsdp
