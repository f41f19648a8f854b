#include <base/text.h>
#include <command_line/command_line.h>
#include <nn/models.h>
#include <options/choices.h>
#include <options/groups.h>

#include <limits>

namespace fsdp {

void add_training_options(CLI::App& app, TrainConfig& config, GivenTraining& given) {
  add_number(app, "--steps", given.steps, NumberRange<int64_t>{0, kMany},
             "optimizer steps; 0: only compute the loss (default 100, or the number of --recipe)");
  add_number(app, "--stop-after", config.training.stop_after, NumberRange<int64_t>{1, kMany},
             "end after this step, with the schedule of a run of --steps; --resume continues up to "
             "--steps (default: the last step)");
  add_number(
      app, "--batch", given.batch, NumberRange<int64_t>{1, kMany},
      "rows of the global batch, a multiple of --microbatches (default: at least 8, or the number "
      "of --recipe)");
  add_number(app, "--microbatches", given.microbatches, NumberRange<int64_t>{1, kMaxMicrobatches},
             "microbatches, equal parts of the global batch; a rank computes its microbatches one "
             "after another (default: one for each rank)");
  add_choice(app, "--reduce-gradients", config.training.reduce_gradients,
             choices_of({ReduceGradients::each, ReduceGradients::last}),
             "each (reduce the gradients of each microbatch) or last (add up the gradients of a "
             "rank's microbatches, and reduce the sum after the last one) (default each)");
  add_number(app, "--seq", given.seq, NumberRange<int64_t>{1, kMany},
             "tokens in a row of the batch (default: depends on the model)");
  add_number(app, "--seed", config.training.seed,
             NumberRange<uint64_t>{0, std::numeric_limits<uint64_t>::max()},
             "seed of the parameters and the batches (default 42)");
  add_advice(app, "--epochs",
             "--steps counts the steps: an epoch has as many as --batch times --seq fits into the "
             "tokens of the data");
  add_advice(app, "--max-length", "--seq is the number of tokens in a row");
  app.add_flag("--allow-nan", config.training.allow_nan,
               "continue when a loss or the norm of the gradients is not finite (default: stop)");
}

void resolve_microbatches(TrainConfig& config, const GivenTraining& given) {
  config.training.microbatches = static_cast<int>(given.microbatches.value_or(config.ranks.world));
}

void resolve_training(TrainConfig& config, const GivenTraining& given, const Defaults& defaults) {
  config.training.steps = given.steps.value_or(defaults.steps);
  config.training.batch = given.batch.value_or(defaults.batch);
  config.training.seq = given.seq.value_or(defaults.seq);
}

void check_seq(const TrainConfig& config) {
  const int64_t context = model_info(config.model.name).context;
  if (config.training.seq > context) {
    throw UsageError("--seq " + std::to_string(config.training.seq) + ": " + config.model.name +
                     " takes at most " + std::to_string(context) + " tokens");
  }
}

void check_stop_after(const TrainConfig& config) {
  const int64_t last = config.training.stop_after;
  if (last == 0) return;
  const std::string name = "--stop-after " + std::to_string(last) + ": ";
  if (last > config.training.steps)
    throw UsageError(name + "the run has only " + counted(config.training.steps, "step") +
                     " (--steps)");
  if (last <= config.checkpoint.first_step)
    throw UsageError(name + "the checkpoint has " + std::to_string(config.checkpoint.first_step) +
                     " steps already; give a larger number");
}

void check_training(const TrainConfig& config) {
  check_stop_after(config);
  const int64_t batch = config.training.batch;
  const int microbatches = config.training.microbatches;
  if (microbatches % config.ranks.world != 0)
    throw UsageError("--microbatches " + std::to_string(microbatches) +
                     ": must be a multiple of the " + std::to_string(config.ranks.world) +
                     " ranks (--world)");
  if (batch % microbatches != 0) {
    throw UsageError("--batch " + std::to_string(batch) + ": can't be cut into " +
                     std::to_string(microbatches) + " equal parts (" +
                     (microbatches > config.ranks.world ? "--microbatches)" : "--world)"));
  }
}

}  // namespace fsdp
