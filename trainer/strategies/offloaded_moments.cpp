#include <offload/anonymous_file.h>
#include <offload/moment_file.h>
#include <prediction/schedule.h>
#include <strategies/offloaded_moments.h>

#include <memory>

namespace fsdp {

TrainConfig with_state_file(TrainConfig config, const ShardLayout& layout, int rank) {
  if (config.memory.offload_dir.empty()) return config;
  const Schedule step = schedule(config, layout, rank);
  config.optimizer.moments = std::make_shared<MomentFile>(
      config.memory.offload_dir, step.state_file_bytes, config.memory.offload_resident);
  const AnonymousFile room(config.memory.offload_dir, step.partial_sum_bytes, kSumsInFile);
  return config;
}

}  // namespace fsdp
