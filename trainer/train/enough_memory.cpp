#include <base/text.h>
#include <prediction/prediction.h>
#include <report/telemetry.h>
#include <sys/sysinfo.h>
#include <train/enough_memory.h>

#include <stdexcept>

namespace fsdp {

int64_t memory_of_machine() {
  struct sysinfo machine {};
  sysinfo(&machine);
  return static_cast<int64_t>((machine.totalram + machine.totalswap) * machine.mem_unit);
}

void require_enough_memory(const TrainConfig& config, const ShardLayout& layout,
                           const std::optional<ModelTraces>& traces, const Transports& transports,
                           int processes, int64_t memory) {
  const Schedule step = schedule(config, layout, /*rank=*/0, /*first=*/false, traces);
  const int64_t needed = processes * predict_memory(step, transports).peak.bytes.total;
  if (needed <= memory) return;
  throw std::runtime_error("--mode " + config.mode + " of " + config.model + " needs " +
                           with_commas(needed) + " bytes on " + counted(processes, "rank") +
                           (traces ? "" : ", without activations,") + " and this machine has " +
                           with_commas(memory) +
                           "; shard it (--mode fsdp), take fewer ranks, or --offload optimizer");
}

}  // namespace fsdp
