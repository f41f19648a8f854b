#include <optim/state_file.h>
#include <prediction/schedule.h>
#include <train/offload.h>

namespace fsdp {

TrainConfig with_state_file(TrainConfig config, const ShardLayout& layout, int rank) {
  if (config.offload_dir.empty()) return config;
  const int64_t bytes = schedule(config, layout, rank).state_file_bytes;
  config.optimizer.file = std::make_shared<StateFile>(config.offload_dir, bytes, config.pinned);
  return config;
}

}  // namespace fsdp
