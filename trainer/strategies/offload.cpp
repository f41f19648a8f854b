#include <offload/nameless_file.h>
#include <offload/state_file.h>
#include <prediction/schedule.h>
#include <strategies/offload.h>

namespace fsdp {
namespace {

const std::string kSums = "sums of gradients that wait";

}  // namespace

TrainConfig with_state_file(TrainConfig config, const ShardLayout& layout, int rank) {
  if (config.offload_dir.empty()) return config;
  const Schedule step = schedule(config, layout, rank);
  config.optimizer.moments =
      std::make_shared<StateFile>(config.offload_dir, step.state_file_bytes, config.pinned);
  const NamelessFile room(config.offload_dir, step.put_aside_bytes, kSums);
  return config;
}

std::vector<at::Tensor> put_aside(std::vector<at::Tensor> sum, const std::string& offload_dir) {
  if (offload_dir.empty()) return sum;
  return copies_in_file(offload_dir, sum, kSums);
}

}  // namespace fsdp
