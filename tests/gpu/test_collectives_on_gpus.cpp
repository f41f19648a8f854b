#include "gpus.h"

namespace fsdp {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kNumel = 100'003;

at::Tensor of_rank(int rank, int64_t numel = kNumel) {
  return at::arange(numel, at::TensorOptions(at::kFloat).device(at::kCUDA)) * (1 + 0.1 * rank);
}

at::Tensor sum_over_ranks(int world_size, int64_t numel = kNumel) {
  at::Tensor sum = of_rank(0, numel);
  for (int rank = 1; rank < world_size; ++rank)
    sum += of_rank(rank, numel);
  return sum;
}

void gather_reduce_and_broadcast(Communicator& comm) {
  const int world_size = comm.world_size();
  const at::Tensor own = of_rank(comm.rank());
  const at::Tensor all = comm.empty(kNumel * world_size);
  comm.all_gather_into(all, own, "unit").wait();
  for (int rank = 0; rank < world_size; ++rank) {
    require(all.narrow(0, kNumel * rank, kNumel).equal(of_rank(rank)), "all_gather: another input");
  }

  const at::Tensor part = comm.empty(kNumel);
  comm.reduce_scatter_into(part, of_rank(comm.rank(), kNumel * world_size), "unit").wait();
  const at::Tensor sum = sum_over_ranks(world_size, kNumel * world_size);
  require(part.allclose(sum.narrow(0, kNumel * comm.rank(), kNumel), 1e-6, 0), "reduce_scatter");

  const at::Tensor reduced = of_rank(comm.rank());
  comm.all_reduce(reduced, "unit").wait();
  require(reduced.allclose(sum_over_ranks(world_size), 1e-6, 0), "all_reduce: another sum");

  const at::Tensor sent = of_rank(comm.rank());
  comm.broadcast(sent, world_size - 1, "unit").wait();
  require(sent.equal(of_rank(world_size - 1)), "broadcast: another rank's tensor");
  comm.barrier("unit").wait();
}

// Frees and allocates memory while collectives are pending. If memory that a stream still reads or
// writes were reused too early, a result would have wrong values.
void reuse_memory_at_once(Communicator& comm) {
  for (int round = 0; round < 200; ++round) {
    const at::Tensor all = comm.empty(kNumel * comm.world_size());
    Handle gather;
    {
      const at::Tensor own = of_rank(comm.rank()) + round;
      gather = comm.all_gather_into(all, own, "unit");
    }
    const at::Tensor other = at::full({kNumel}, -1.0, all.options());
    gather.wait();
    const at::Tensor of_last = all.narrow(0, kNumel * (comm.world_size() - 1), kNumel);
    require(of_last.equal(of_rank(comm.world_size() - 1) + round),
            "round " + std::to_string(round) + ": another value than was sent");
    require(other.eq(-1.0).all().item<bool>(), "memory that was in use was reused");
  }
}

TEST(CollectiveOn1GPU, collectives_of_one_rank_work_over_nccl) {
  SKIP_WITHOUT_GPUS(1);
  EXPECT_EQ(on_gpus(1, {"nccl", 60s}, gather_reduce_and_broadcast), "");
}

TEST(CollectiveOn1GPU, ranks_that_share_a_gpu_communicate_through_the_host) {
  SKIP_WITHOUT_GPUS(1);
  for (const char* backend : {"shm", "gloo"}) {
    for (const int world_size : {1, 2, 3}) {
      EXPECT_EQ(on_gpus(world_size, {backend, 60s}, gather_reduce_and_broadcast), "")
          << backend << " W=" << world_size;
    }
  }
}

TEST(CollectiveOn1GPU, gpu_memory_is_reused_only_after_the_collective_that_uses_it_is_done) {
  SKIP_WITHOUT_GPUS(1);
  EXPECT_EQ(on_gpus(1, {"nccl", 60s}, reuse_memory_at_once), "");
}

TEST(CollectiveOn1GPU, the_backend_auto_is_nccl_if_each_rank_has_a_gpu) {
  SKIP_WITHOUT_GPUS(1);
  const int gpus = gpu::count_gpus_before_fork();
  EXPECT_EQ(
      on_gpus(1, {}, [](Communicator& comm) { require(comm.backend() == "nccl", comm.backend()); }),
      "");
  EXPECT_EQ(on_gpus(gpus + 1, {},
                    [](Communicator& comm) { require(comm.backend() == "shm", comm.backend()); }),
            "");
}

TEST(CollectiveOn2GPUs, collectives_over_nccl_equal_a_local_computation) {
  SKIP_WITHOUT_GPUS(2);
  for (int world_size = 2; world_size <= gpu::count_gpus_before_fork(); world_size *= 2) {
    EXPECT_EQ(on_gpus(world_size, {"nccl", 60s}, gather_reduce_and_broadcast), "")
        << "W=" << world_size;
    EXPECT_EQ(on_gpus(world_size, {"nccl", 60s}, reuse_memory_at_once), "") << "W=" << world_size;
  }
}

TEST(CollectiveOn2GPUs,
     a_call_over_nccl_that_differs_between_ranks_in_the_first_iteration_is_named) {
  SKIP_WITHOUT_GPUS(2);
  const std::string failure = on_gpus(2, {"nccl", 20s}, [](Communicator& comm) {
    const at::Tensor all = comm.empty(2 * kNumel);
    const std::string unit = comm.rank() == 0 ? "layers.0" : "layers.1";
    comm.all_gather_into(all, of_rank(comm.rank()), unit).wait();
  });
  EXPECT_NE(failure.find("collective #0 differs between ranks"), std::string::npos) << failure;
}

}  // namespace
}  // namespace fsdp
