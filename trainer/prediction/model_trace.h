#pragma once

#include <config/train_config.h>
#include <optim/shard_layout.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace fsdp {

// What a rank's model does in the forward and the backward of one part, in order, as the hooks of
// task 7 see it. The activations ("rest") are those of the part, of the batch, and of what is alive
// beside the model's parameters.
struct ModelTrace {
  enum class Kind : uint8_t {
    pre_forward,  // of a unit's module; the root's too
    post_forward,
    pre_backward,
    post_backward,  // only if the module's input needs a gradient
    gradient,       // of a parameter: it is complete
    root_unread,    // backward reads the root's parameters no more
    end,            // of the backward pass
    none            // nothing that a hook sees: the end of the forward, and of the graph
  };
  struct Event {
    Kind kind;
    size_t index{};  // of the unit in the layout; of the parameter, for a gradient
    // post_forward: backward will read the unit. post_backward: all its calls have come back.
    bool last{true};
    int64_t gradient_bytes{};  // that the parameter's .grad takes more than before
    // Since the event before:
    int64_t peak{};         // [bytes] most activations alive
    int64_t activations{};  // [bytes] activations alive at this event
    int64_t flops{};        // of matrix products and attention, two for a product and its sum
    int64_t time{};         // [ns] of computing, if it is given
  };
  std::vector<Event> forward, backward;
  int64_t begin_peak{};  // [bytes] of activations while the batch of a step is made
  int64_t begin{};       // [bytes] of activations before a forward
  int64_t left{};        // [bytes] more after a backward: the loss
};

// `begins`: the gradients of the part begin a sum. `adds`: each is added to a .grad that is there;
// empty where that makes no difference.
struct ModelTraces {
  ModelTrace begins, adds;
  bool has_activations{};  // false: their bytes are not known, and 0 here
};

// What a unit's module computes itself. [ns]
struct UnitTime {
  int64_t forward{}, backward{};
};

// The trace of a model that calls the units of `layout` one after another, each once, with the root
// around them: in forward the root computes after the others, in backward before them. A gradient
// is complete when its module comes back. `times`: of each unit, or empty. `units_before_readers`:
// how many of the others come before what reads the root's parameters in backward; none: these are
// kept to its end.
ModelTraces chain_of(const TrainConfig& config, const ShardLayout& layout,
                     const std::vector<UnitTime>& times = {},
                     std::optional<size_t> units_before_readers = {});

}  // namespace fsdp
