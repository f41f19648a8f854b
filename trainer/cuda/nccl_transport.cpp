#include <c10/cuda/CUDAFunctions.h>
#include <comm/ledger.h>
#include <cuda/nccl_transport.h>
#include <cuda/process_group_transport.h>
#include <hosts/rendezvous.h>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <utility>

namespace fsdp {

std::shared_ptr<Transport> make_nccl_transport(const RankContext& context,
                                               std::shared_ptr<Ledger> ledger,
                                               std::chrono::milliseconds timeout) {
  const Group group = ledger->group();
  auto options = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
  // NCCL's watchdog ends the process if a collective takes longer than options->timeout. This is
  // longer than the ledger's time limit, so that the ledger can report the cause first.
  options->timeout = 2 * timeout;
  auto nccl = c10::make_intrusive<c10d::ProcessGroupNCCL>(
      rendezvous_of(context, group, "bytes", timeout), ledger->rank(), group.size, options);
  nccl->eagerConnectSingleDevice(at::Device(at::kCUDA, c10::cuda::current_device()));
  return make_process_group_transport({"nccl", std::move(nccl), c10::kCUDA}, std::move(ledger));
}

}  // namespace fsdp
