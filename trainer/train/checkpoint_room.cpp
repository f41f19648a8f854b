#include <base/text.h>
#include <report/telemetry.h>
#include <train/checkpoint_room.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <stdexcept>

namespace fsdp {

int64_t room_for_checkpoints(const TrainConfig& config) {
  namespace fs = std::filesystem;
  std::error_code unknown;
  fs::path folder = fs::absolute(config.checkpoint.dir, unknown);
  while (!fs::exists(folder, unknown) && folder.has_relative_path())
    folder = folder.parent_path();
  const fs::space_info space = fs::space(folder, unknown);
  const bool known = !unknown && space.capacity > 0;
  return known && space.available <= static_cast<uintmax_t>(std::numeric_limits<int64_t>::max())
             ? static_cast<int64_t>(space.available)
             : std::numeric_limits<int64_t>::max();
}

int64_t checkpoint_bytes(const TrainConfig& config, const ShardLayout& layout) {
  const auto groups = config.optimizer.parameter_groups();
  int64_t numel = 0;  // number of elements of the parameters and of their moments
  for (const auto& parameter : layout.parameters) {
    const OptimizerOptions& options = groups[group_of(parameter.name, groups)].options;
    const int64_t moments = parameter.trainable ? options.moments_of_element() : 0;
    numel += parameter.numel * (1 + moments);
  }
  return numel * int64_t{sizeof(float)};
}

void require_room_for_checkpoints(const TrainConfig& config, const ShardLayout& layout,
                                  int64_t room) {
  const int64_t each = checkpoint_bytes(config, layout);
  int64_t count = (config.end_step() - 1) / config.checkpoint.save_every -
                  config.checkpoint.first_step / config.checkpoint.save_every + 1;
  // With --keep K, at most K + 1 checkpoints exist at the same time, because the oldest one is
  // removed only when the new one is complete.
  if (config.checkpoint.keep) count = std::min(count, *config.checkpoint.keep + 1);
  if (config.end_step() == config.checkpoint.first_step || each <= 0 || count <= room / each)
    return;
  throw std::runtime_error(
      "--checkpoint-dir " + config.checkpoint.dir + ": has " + with_commas(room) +
      " bytes free, too few for " + counted(count, "checkpoint") + " of " + with_commas(each) +
      " bytes; give " + (room < each ? "" : "--keep, a larger --save-every or ") +
      "another folder");
}

}  // namespace fsdp
