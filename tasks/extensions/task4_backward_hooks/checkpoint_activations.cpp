#include <base/todo.h>
#include <checkpoint_activations.h>
#include <layout/shard_layout.h>
#include <memory/storage_guard.h>
#include <nn/generator_states.h>
#include <torch/csrc/autograd/custom_function.h>

#include <stdexcept>

namespace fsdp {

void checkpoint_activations(Module& module) {
  todo("checkpoint_activations", "4.6");
}

}  // namespace fsdp
