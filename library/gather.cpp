#include <sharding.h>
#include <state/whole_state.h>

namespace fsdp {

std::map<std::string, at::Tensor> gather(
    const Sharding& sharding, const std::map<size_t, std::map<std::string, at::Tensor>>& own) {
  Communicator& comm = sharding.comm();
  const auto& entries = sharding.tensors().entries();
  std::map<std::string, at::Tensor> whole;
  for (size_t unit = 0; unit < sharding.sharded().units().size(); ++unit) {
    const FlatParameter& flat_parameter = *sharding.sharded().units()[unit];
    std::map<std::string, at::Tensor> shards;  // by key: [padded / W]
    for (const auto& [index, tensors] : own) {
      const auto& entry = entries[index];
      if (entry.unit != unit) continue;
      for (const auto& [key, tensor] : tensors) {
        at::Tensor& shard = shards[key];
        if (!shard.defined()) shard = comm.empty(flat_parameter.shard_numel()).zero_();
        shard.narrow(0, entry.offset, entry.own.numel()).copy_(tensor);
      }
    }
    for (const auto& [key, shard] : shards) {
      const at::Tensor flat = gather_flat(comm, shard, flat_parameter.unit());
      for (const auto& [index, tensors] : own)
        if (entries[index].unit == unit && tensors.contains(key))
          whole[entries[index].name + "/" + key] =
              cut_out(flat, entries[index].flat, entries[index].whole.sizes());
    }
  }
  comm.wait_for_readers();
  return whole;
}

}  // namespace fsdp
