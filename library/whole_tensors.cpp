#include <memory/memory_class.h>
#include <whole_tensors.h>

namespace fsdp {

at::Tensor gather_flat(Communicator& comm, const FlatParameter& unit, const at::Tensor& shard) {
  const MemoryScope scope(MemoryClass::gathered);
  const at::Tensor flat = comm.empty(unit.layout().padded_numel, shard.scalar_type());
  comm.all_gather_into(flat, shard, unit.unit()).wait();
  return flat;
}

at::Tensor cut_out(const at::Tensor& flat, int64_t offset, at::IntArrayRef sizes) {
  return flat.narrow(0, offset, c10::multiply_integers(sizes)).view(sizes).cpu().clone();
}

}  // namespace fsdp
