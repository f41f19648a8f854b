#include <launch/shared_region.h>
#include <transports/backends.h>

#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

std::shared_ptr<Transport> make_nccl(const RankContext& context,
                                     const std::shared_ptr<Ledger>& ledger,
                                     const CommunicatorOptions& options) {
  if (cuda_backend.make_nccl == nullptr || options.device != cuda_backend.device) {
    throw std::invalid_argument("backend nccl needs a CUDA build and device cuda");
  }
  const size_t ranks = context.local_ranks().size();
  if (ranks > static_cast<size_t>(cuda_backend.gpus)) {
    throw std::invalid_argument("backend nccl needs " + std::to_string(ranks) +
                                " GPUs, one for each rank of this host; it has " +
                                std::to_string(cuda_backend.gpus));
  }
  return cuda_backend.make_nccl(context, ledger, options.timeout);
}

// Makes a transport over shm or gloo, for tensors of the options' device.
std::shared_ptr<Transport> make_on_host(const std::string& backend, const RankContext& context,
                                        const std::shared_ptr<Ledger>& ledger,
                                        const CommunicatorOptions& options) {
  const bool shm = backend == "shm";
  auto transport = shm ? make_shm_transport(context, ledger)
                       : make_gloo_transport(context, ledger, options.timeout);
  if (options.device == c10::kCPU) return transport;
  if (cuda_backend.gpus == 0) {
    throw std::invalid_argument("device cuda needs a GPU: call gpu::use_gpu_of() first");
  }
  if (shm) context.shared->stop_counting(context.rank);
  // For gloo, the host copies are in pinned memory, which the GPU itself reads and writes. For shm,
  // they are in this rank's arena (memory that the ranks share), so that the other ranks read them
  // in place; arenas are not pinned.
  c10::Allocator* staging = shm ? transport->allocator() : cuda_backend.pinned;
  return make_staged_transport(std::move(transport), options.device, staging);
}

}  // namespace

std::string choose_backend(const RankContext& context, const CommunicatorOptions& options,
                           const Group& group) {
  if (options.backend == "shm" && !context.on_one_host(group)) {
    throw std::invalid_argument("backend shm: the ranks are on several hosts (" +
                                context.hosts->text() + "); use auto, which is shm inside a host");
  }
  if (options.link && !context.on_one_host(group))
    throw std::invalid_argument("a simulated link needs all ranks on one host");
  if (options.backend != "auto") return options.backend;
  const auto gpus = static_cast<size_t>(cuda_backend.gpus);
  if (options.device == c10::kCUDA && context.local_ranks().size() <= gpus) return "nccl";
  return context.on_one_host(group) && context.shared->has_arenas() ? "shm" : "gloo";
}

Compare comparison_over(const std::string& backend, const RankContext& context,
                        const CommunicatorOptions& options) {
  const Compare usual = backend == "nccl" ? Compare::first_iteration : Compare::always;
  const Compare wanted = options.compare.value_or(usual);
  if (wanted == Compare::always || (backend != "shm" && !options.link)) return wanted;
  // For launched ranks, calls over shm are always compared, whatever the options say.
  if (!options.link && context.hosts) return Compare::always;
  throw std::invalid_argument("calls over " +
                              std::string(options.link ? "a simulated link" : "backend shm") +
                              " must always be compared: leave CommunicatorOptions::compare unset");
}

std::shared_ptr<Transport> make_transport(const std::string& backend, const RankContext& context,
                                          const std::shared_ptr<Ledger>& ledger,
                                          const CommunicatorOptions& options) {
  std::shared_ptr<Transport> transport;
  if (backend == "nccl") {
    transport = make_nccl(context, ledger, options);
  } else if (backend == "shm" || backend == "gloo") {
    transport = make_on_host(backend, context, ledger, options);
  } else {
    throw std::invalid_argument("unknown backend '" + backend +
                                "': allowed are auto, shm, gloo and nccl");
  }
  if (options.link)
    transport = make_link_transport(std::move(transport), *options.link, ledger, options.clock);
  return transport;
}

}  // namespace fsdp
