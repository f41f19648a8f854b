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
    int64_t bytes;                 // negative: freed
    std::optional<size_t> unit{};  // the unit that the memory serves, if it serves one
  };
  struct Compute {              // computing of the model between two events of its trace
    int64_t peak, activations;  // [bytes] of activations alive: at most meanwhile, and at the end
    int64_t flops{}, time{};    // time: [ns]; 0: not given
    std::optional<size_t> unit{};  // the unit whose module runs; empty: the root's module runs
  };
  struct Issue {
    Operation operation;
    int64_t numel;  // of the larger tensor
    int64_t element_bytes;
    int ranks;                     // that make the call together
    int stride;                    // from one of these ranks to the next; 1: neighbours
    int place;                     // of this rank among these ranks
    bool in_arena;                 // the transport reads the tensor in place
    std::optional<size_t> unit{};  // the unit that the call serves, if it serves one
    std::string_view label{};      // "norm" or "metrics" if it serves no parameter

    int64_t part() const { return round_up(numel, ranks) / ranks; }  // [elements] of one rank
    int64_t bytes_received() const {  // by one rank, by the textbook count of communicator.h
      return (operation == Operation::all_reduce ? 2 : 1) * (ranks - 1) * part() * element_bytes;
    }
  };
  struct Wait {     // a second Wait for the same Issue does nothing
    size_t action;  // index of the Issue
  };
  using Action = std::variant<Enter, Allocate, Compute, Issue, Wait>;
  std::vector<Action> actions;
  int64_t state_file_bytes{};   // of the optimizer's moments if they lie in a file; else 0
  int64_t partial_sum_bytes{};  // of partial sums of gradients, at most, if moments lie in a file
  bool has_activations{};       // false: the bytes of Compute are 0
  bool in_order{true};          // false: some units contain others, and no trace gives their order
};

// Returns the step of `rank` for a model with these traces. Without traces, uses those that
// chain_of() returns for the layout.
// - `first`: the step is the first one of the run. Its first forward does not prefetch, because no
//   order of the units is known yet, unless the run evaluates before the step. The optimizer has no
//   state before its first update, unless the run loads a checkpoint or the parameters of another
//   model.
// - A run of no steps is one forward without gradients.
Schedule schedule(const TrainConfig& config, const ShardLayout& layout, int rank = 0,
                  bool first = false, const std::optional<ModelTraces>& traces = {});

}  // namespace fsdp
