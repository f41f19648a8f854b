#include <memory/memory_class.h>
#include <state/gather_flat.h>

namespace fsdp {

at::Tensor gather_flat(Communicator& comm, const at::Tensor& shard, const std::string& unit) {
  const MemoryScope scope(MemoryClass::gathered);
  const at::Tensor flat = comm.empty(shard.numel() * comm.world_size(), shard.scalar_type());
  comm.all_gather_into(flat, shard, unit).wait();
  return flat;
}

at::Tensor parameter_in(const at::Tensor& flat, int64_t offset, at::IntArrayRef sizes) {
  return flat.narrow(0, offset, c10::multiply_integers(sizes)).view(sizes);
}

at::Tensor cut_out(const at::Tensor& flat, int64_t offset, at::IntArrayRef sizes) {
  return parameter_in(flat, offset, sizes).cpu().clone();
}

}  // namespace fsdp
