#include <base/text.h>
#include <launch/launched.h>
#include <options/groups.h>
#include <tokenizer/tokenizer_folder.h>
#include <CLI/CLI.hpp>

#include <cstdio>

namespace fsdp {
namespace {

// If `option` was given, prints on stderr that it has no effect with `beside`: the settings of the
// run because of which it has no effect.
void name_unused(const CLI::App& app, const std::string& option, const std::string& beside) {
  if (app.count(option) == 0) return;
  std::fprintf(stderr, "fsdp train: %s has no effect with %s\n", option.c_str(), beside.c_str());
}

void name_unused_of_mode(const CLI::App& app, const TrainConfig& config) {
  const std::string mode = std::string("--mode ") + to_string(config.ranks.mode);
  const ShardingConfig& sharding = config.sharding;
  if (config.ranks.mode != Mode::fsdp) {
    for (const char* option :
         {"--wrap", "--reshard-after-forward", "--prefetch", "--limit", "--forward-limit",
          "--backward-limit", "--meta-init", "--step-in-backward"})
      name_unused(app, option, mode);
    if (config.ranks.mode == Mode::ddp) {
      for (const char* option : {"--strategy", "--shard-size"})
        name_unused(app, option, mode);
    }
  } else if (sharding.prefetch && sharding.limit_in_forward() == 1 &&
             sharding.limit_in_backward() == 1) {
    name_unused(app, "--prefetch", "--limit 1");
  }
  if (config.ranks.mode == Mode::single) name_unused(app, "--backend", mode);
}

// If the run trains on the bytes of a text although the folder of --init has a tokenizer, prints on
// stderr how to train with this tokenizer.
void name_unused_tokenizer(const TrainConfig& config) {
  const std::string& folder = config.model.init;
  if (folder.empty() || config.data.kind != DataKind::text) return;
  if (tokenizer_in({folder}).empty()) return;
  std::fprintf(
      stderr,
      "fsdp train: the %s in %s has no effect: --data text trains on bytes; make token ids "
      "of your text with ./fsdp tokenize, and give --tokens\n",
      kTokenizerFile.c_str(), folder.c_str());
}

}  // namespace

void name_unused_options(const CLI::App& app, const TrainConfig& config) {
  const auto self = launched_rank();
  if (config.reports.print_units || (self && self->rank > 0)) return;
  name_unused_of_mode(app, config);
  name_unused_tokenizer(config);
  const TrainingConfig& training = config.training;
  if (training.microbatches == config.ranks.world)
    name_unused(app, "--reduce-gradients", "one microbatch for each rank (--microbatches)");
  const CheckpointConfig& checkpoint = config.checkpoint;
  const int64_t every = checkpoint.save_every;
  if (checkpoint.async && (config.end_step() - 1) / every == checkpoint.first_step / every)
    name_unused(app, "--save-async", "one checkpoint, after the last step (--save-every)");
  if (config.optimizer.warmup >= training.steps && training.steps > 0)
    std::fprintf(stderr,
                 "fsdp train: --warmup %lld: --lr %.4g is not reached in %s; the last one has the "
                 "rate %.4g\n",
                 static_cast<long long>(config.optimizer.warmup), config.optimizer.lr,
                 counted(training.steps, "step").c_str(), config.lr_of(training.steps - 1));
}

}  // namespace fsdp
