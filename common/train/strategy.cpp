#include <memory/live_bytes.h>
#include <nn/models.h>
#include <train/strategy.h>

namespace fsdp {

at::Tensor local_loss(Module& model, const Batch& global, const Communicator& comm) {
  const Batch batch = global.part(comm.rank(), comm.world_size()).to(comm.device());
  live_bytes::enter(Phase::forward);
  return language_model_loss(model, batch.inputs, batch.targets);
}

}  // namespace fsdp
