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

// One step of a rank: the list, in order, of everything in it that costs memory, traffic or time.
// prediction.h adds up its bytes, step_time.h its time. The list shows in which order units are
// gathered, reduced and freed, which the headers of tasks 3 to 6 say in words. It does not show how
// hooks bring that order about.
struct Schedule {
  struct Enter {
    Phase phase;
  };
  struct Allocate {
    MemoryClass cls;
    int64_t bytes;                 // negative: freed
    std::optional<size_t> unit{};  // whose, if it is one unit's
  };
  struct Compute {                 // what the model computes between two events of its trace
    int64_t peak, activations;     // [bytes] activations: most alive meanwhile, and alive then
    int64_t flops{}, time{};       // time: [ns], if it is given
    std::optional<size_t> unit{};  // whose module runs, if it is not the root's
  };
  struct Issue {
    Operation operation;
    int64_t numel;  // of the larger tensor
    int64_t element_bytes;
    int ranks;                     // between which it runs
    int stride;                    // from one of them to the next: 1 if they are neighbours
    int place;                     // of this rank among them
    bool in_arena;                 // the transport reads the tensor where it lies
    std::optional<size_t> unit{};  // that it serves, if any
    std::string_view label{};      // "norm" or "metrics" if it serves no parameter

    int64_t part() const { return round_up(numel, ranks) / ranks; }  // [elements] of a rank
    int64_t bytes_received() const {  // by a rank, by the textbook count of communicator.h
      return (operation == Operation::all_reduce ? 2 : 1) * (ranks - 1) * part() * element_bytes;
    }
  };
  struct Wait {     // a second one for the same call does nothing
    size_t action;  // index of the Issue
  };
  using Action = std::variant<Enter, Allocate, Compute, Issue, Wait>;
  std::vector<Action> actions;
  int64_t state_file_bytes{};   // of the optimizer's moments, if they lie in a file
  int64_t partial_sum_bytes{};  // then also of sums of gradients that wait for other parts, at most
  bool has_activations{};       // else those of Compute are 0
  bool in_order{true};  // false: units lie inside others, and there are no traces of their order
};

// The step of `rank`, of a model with these traces; without them, of a chain_of() the layout.
// `first`: the first one of the run, which knows no order to prefetch by and, unless it goes on
// from a checkpoint, has no optimizer state before its last phase. A run of no steps is one forward
// without gradients.
Schedule schedule(const TrainConfig& config, const ShardLayout& layout, int rank = 0,
                  bool first = false, const std::optional<ModelTraces>& traces = {});

}  // namespace fsdp
