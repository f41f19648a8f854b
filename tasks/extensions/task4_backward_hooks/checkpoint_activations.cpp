#include <base/todo.h>
#include <checkpoint_activations.h>
#include <memory/storage_guard.h>
#include <nn/generator_states.h>
#include <nn/thread_settings.h>
#include <optim/shard_layout.h>
#include <torch/csrc/autograd/custom_function.h>

#include <stdexcept>

namespace fsdp {

void checkpoint_activations(Module& module) {
  todo("checkpoint_activations", "4.6");
}

}  // namespace fsdp
