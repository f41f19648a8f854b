#pragma once

#include <comm/call.h>
#include <config/train_config.h>
#include <memory/live_bytes.h>
#include <prediction/model_trace.h>

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace fsdp {

// One step of a rank: everything in it that costs memory, traffic or time, in order. prediction.h
// adds up the bytes, step_time.h the time. The list shows in which order units are unsharded,
// reduced and freed, which the headers of tasks 3 to 6 describe in words. It does not show how
// hooks produce that order.
struct Schedule {
  struct Enter {
    Phase phase;
  };
  struct Allocate {
    MemoryClass cls;
    int64_t bytes;                 // number of bytes allocated; negative: freed
    std::optional<size_t> unit{};  // the unit that the memory serves; empty: it serves no unit
  };
  // The action in which the model computes from one event of its ModelTrace to the next.
  struct Compute {
    // `peak`: the most bytes of activations alive during the computation. `activations`: number of
    // bytes of activations alive at its end.
    int64_t peak, activations;
    int64_t flops{}, time{};       // `time`: [ns] of computing; 0: not given
    std::optional<size_t> unit{};  // the unit whose module runs; empty: the root's module runs
  };
  struct Issue {
    Operation operation;
    int64_t numel;  // number of elements of the input or of the output, whichever is larger
    int64_t element_bytes;
    int ranks;  // number of ranks that make the call together
    // Distance from one rank of the call to the next one; 1: they are neighbours.
    int stride;
    int place;  // index of this rank among the ranks of the call
    // Says whether the tensor of the call is from Communicator::empty(). Then it lies, with shm and
    // tensors on the CPU, in memory that the other ranks read in place.
    bool in_arena;
    std::optional<size_t> unit{};  // the unit that the call serves; empty: it serves no unit
    std::string_view label{};  // "norm" or "metrics" if the call serves no parameter, else empty

    // Returns the number of elements of one rank's part of the tensor.
    int64_t part() const { return round_up(numel, ranks) / ranks; }
    // Returns the bytes that one rank receives, as textbook_bytes() counts them (comm/call.h).
    int64_t bytes_received() const {
      return (operation == Operation::all_reduce ? 2 : 1) * (ranks - 1) * part() * element_bytes;
    }
  };
  // The action in which the rank waits for a collective call. A second Wait for the same call does
  // nothing.
  struct Wait {
    size_t action;  // index in `actions` of the action that issues the call
  };
  using Action = std::variant<Enter, Allocate, Compute, Issue, Wait>;
  std::vector<Action> actions;
  // Number of bytes of the optimizer's moments if they are in a file; else 0.
  int64_t state_file_bytes{};
  // The most bytes of earlier partial sums of gradients that are in files at a time, if the moments
  // are in a file; else 0.
  int64_t partial_sum_bytes{};
  bool has_activations{};  // false: the bytes of activations are unknown, and 0 in each Compute
  // Says whether `actions` are in the order in which a step of training runs them. They are not if
  // a unit other than the root contains another unit, and no recorded trace of the model's calls
  // gives their order.
  bool in_order{true};
};

// Returns the step of `rank` for a model with these traces. Without `traces`, uses those that
// chain_of() returns for the layout.
// - `first`: the step is the first one of the run. Its first forward does not prefetch, because no
//   order of the units is known yet, unless the run evaluates before the step. The optimizer has no
//   state before its first update, unless the run loads a checkpoint or the parameters of another
//   model.
// - If config.training.steps is 0, the step is one forward without gradients.
Schedule schedule(const TrainConfig& config, const ShardLayout& layout, int rank = 0,
                  bool first = false, const std::optional<ModelTraces>& traces = {});

}  // namespace fsdp
