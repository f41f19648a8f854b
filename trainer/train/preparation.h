#pragma once

#include <data/dataset.h>
#include <launch/rank_context.h>
#include <prediction/prediction.h>
#include <train/trainer.h>

#include <memory>
#include <optional>

// What a run is made of, and what is known of it before it begins.
namespace fsdp {

// What the run trains: language modeling, with activations checkpointed as `config` says.
Workload workload_of_run(const TrainConfig& config, const FsdpImplementation& fsdp,
                         std::shared_ptr<const Dataset> dataset);

struct Rehearsed {
  ShardLayout layout;
  // Of rehearse(). Of chain_of(), without activations, on a GPU, whose kernels take memory of their
  // own, and for a model that calls an operator without a meta kernel. None: construct_on_meta is
  // missing.
  std::optional<ModelTraces> traces;
};

Rehearsed rehearsed(const TrainConfig& config, const FsdpImplementation& fsdp);

int64_t memory_of_machine();  // [bytes], with swap

// Throws std::runtime_error if a step of `processes` ranks on the CPU needs more than `memory`, by
// the prediction, which without traces leaves out activations: such a run can only end in the
// middle.
void require_enough_memory(const TrainConfig& config, const ShardLayout& layout,
                           const std::optional<ModelTraces>& traces, const Transports& transports,
                           int processes, int64_t memory);

// The bytes that are free where config.checkpoint_dir lies or will lie; the largest number if the
// file system does not say.
int64_t room_for_checkpoints(const TrainConfig& config);

// Throws std::runtime_error if the checkpoints that the run will keep need more than `room` bytes.
void require_room_for_checkpoints(const TrainConfig& config, const ShardLayout& layout,
                                  int64_t room);

// What the strategy sums and gathers by: `world`, unless the model has replicas.
std::shared_ptr<Communicator> strategy_communicator(const RankContext& context,
                                                    const TrainConfig& config,
                                                    const std::shared_ptr<Communicator>& world);

std::unique_ptr<Strategy> make_strategy(const TrainConfig& config, const FsdpImplementation& fsdp,
                                        const Workload& workload, const ShardLayout& layout,
                                        const std::shared_ptr<Communicator>& comm);

// Throws std::invalid_argument if --keep-fp32 names no parameter.
void check_keep_fp32(const TrainConfig& config, const ShardLayout& layout);

// For ranks that a launcher has started one by one, each with a command line and files of its own:
// throws std::runtime_error if their settings, their text or the steps behind them differ, or if
// one does not see the --checkpoint-dir of rank 0. The text names a rank and its host, the option
// that differs, and the two values. All ranks call it together; between forked ranks it does
// nothing.
void require_one_run(const TrainConfig& config, const RankContext& context, Communicator& comm);

}  // namespace fsdp
