#pragma once

#include <config/train_config.h>
#include <optim/shard_layout.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace fsdp {

// The forward and backward of one microbatch on one rank, as the events that FSDP's hooks see, in
// order. "Activations" are all bytes of MemoryClass::other: the activations of the microbatch, the
// batch, and tensors that are alive beside the model's parameters.
struct ModelTrace {
  enum class Kind : uint8_t {
    pre_forward,  // the forward of the module of a unit, which can be the root's, begins
    post_forward,
    pre_backward,
    // The backward of a unit's module has ended. Occurs only if the input of the module requires a
    // gradient.
    post_backward,
    gradient,     // the gradient of a parameter is complete
    root_unread,  // from here on, backward no longer reads the root unit's parameters
    end,          // the backward pass has ended
    // An event that no hook sees: the forward has ended, or the graph was freed after the backward.
    none
  };
  struct Event {
    Kind kind;
    // Index of the unit in the layout; for the kind `gradient`, index of the parameter.
    size_t index{};
    // For the kind post_forward: whether backward will read the unit's parameters. For the kind
    // post_backward: whether the backward of all calls of the unit's module has ended.
    bool last{true};
    // For the kind `gradient`: number of bytes by which the parameter's .grad has grown.
    int64_t gradient_bytes{};
    int64_t peak{};         // the most bytes of activations alive since the previous event
    int64_t activations{};  // number of bytes of activations alive at this event
    // Floating-point operations of matrix products and attention since the previous event; a * b +
    // c counts as two.
    int64_t flops{};
    int64_t time{};  // [ns] of computing since the previous event; 0: not given
  };
  std::vector<Event> forward, backward;
  // The most bytes of activations alive while the batch of a step is made.
  int64_t begin_peak{};
  int64_t begin{};  // number of bytes of activations alive before a forward
  // Number of bytes of activations that a microbatch leaves after its backward: those of the loss.
  int64_t left{};
};

// `begins`: the trace of a microbatch whose gradients begin a new sum. `adds`: the trace of a
// microbatch whose gradients are added to the .grad of the parameters; empty if it equals `begins`.
struct ModelTraces {
  ModelTrace begins, adds;
  // Says whether the bytes of activations are known; if not, they are 0 in `begins` and in `adds`.
  bool has_activations{};
};

// [ns] for which a unit's module itself computes, without waits and other units.
struct UnitTime {
  int64_t forward{}, backward{};
};

// Returns the traces of a model that calls the units of `layout` one after another, each once,
// inside the root's module. In forward the root computes after the other units, in backward before
// them. A gradient is complete when the backward of its module ends.
// - `times`: the compute times of each unit; empty: unknown.
// - `units_before_readers`: how many units, without the root's, come before the first module that
//   reads the root's parameters in backward; nothing: the root's parameters are kept until backward
//   ends.
ModelTraces chain_of(const TrainConfig& config, const ShardLayout& layout,
                     const std::vector<UnitTime>& times = {},
                     std::optional<size_t> units_before_readers = {});

}  // namespace fsdp
