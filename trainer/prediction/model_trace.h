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
    pre_forward,  // of a unit's module; also of the root's
    post_forward,
    pre_backward,
    post_backward,  // only if the module's input requires a gradient
    gradient,       // the gradient of a parameter is complete
    root_unread,    // backward no longer reads the root's parameters
    end,            // the backward pass has ended
    none            // no hook sees it: the forward has ended, or the graph was freed
  };
  struct Event {
    Kind kind;
    size_t index{};  // of the unit in the layout; for a gradient, of the parameter
    // At post_forward: whether backward will read the unit's parameters. At post_backward: whether
    // the backward of all calls of the unit's module has ended.
    bool last{true};
    int64_t gradient_bytes{};  // growth of the parameter's .grad
    // Since the previous event:
    int64_t peak{};         // [bytes] of activations alive, at most
    int64_t activations{};  // [bytes] of activations alive at this event
    int64_t flops{};        // of matrix products and attention; a * b + c counts as two
    int64_t time{};         // [ns] of computing; 0: not given
  };
  std::vector<Event> forward, backward;
  int64_t begin_peak{};  // [bytes] of activations alive, at most, while the batch of a step is made
  int64_t begin{};       // [bytes] of activations alive before a forward
  int64_t left{};        // [bytes] by which activations have grown after a backward: the loss
};

// `begins`: the trace of a microbatch whose gradients begin a sum. `adds`: the trace of a
// microbatch whose gradients are added to the .grad of the parameters; empty if it equals `begins`.
struct ModelTraces {
  ModelTrace begins, adds;
  bool has_activations{};  // false: the bytes of activations are unknown, and 0 here
};

// [ns] The time for which a unit's module itself computes.
struct UnitTime {
  int64_t forward{}, backward{};
};

// Returns the traces of a model that calls the units of `layout` one after another, each once, with
// the root around them. In forward the root computes after the other units, in backward before
// them. A gradient is complete when the backward of its module ends.
// - `times`: of each unit; empty: unknown.
// - `units_before_readers`: how many units, without the root's, come before the first module that
//   reads the root's parameters in backward; none: the root's parameters are kept until backward
//   ends.
ModelTraces chain_of(const TrainConfig& config, const ShardLayout& layout,
                     const std::vector<UnitTime>& times = {},
                     std::optional<size_t> units_before_readers = {});

}  // namespace fsdp
