#include <base/mapping.h>
#include <comm/communicator.h>
#include <gtest/gtest.h>
#include <launch/shared_region.h>
#include <memory/live_bytes.h>
#include <unistd.h>

#include <fstream>
#include <functional>

#include "expect_text.h"
#include "rank_failure.h"

namespace fsdp {
namespace {

using namespace std::chrono_literals;

void expect_no_failure(int world_size, const std::function<void(Communicator&)>& body) {
  EXPECT_EQ(failure(world_size, {.backend = "shm"}, body), "");
}

int64_t staged() {
  return live_bytes::peak()[MemoryClass::communication];
}

TEST(ShmTransport, collectives_read_tensors_from_communicator_empty_without_a_copy) {
  expect_no_failure(2, [](Communicator& comm) {
    const int64_t n = 1000;
    const at::Tensor small = comm.empty(n).zero_(), large = comm.empty(2 * n).zero_();
    require(reinterpret_cast<uintptr_t>(large.data_ptr()) % 64 == 0, "alignment");
    comm.all_gather_into(at::zeros({2 * n}), small, "unit").wait();
    comm.reduce_scatter_into(at::zeros({n}), large, "unit").wait();
    comm.all_reduce(small, "unit").wait();
    comm.broadcast(small, 0, "unit").wait();
    comm.barrier("unit").wait();
    require(staged() == 0, std::to_string(staged()) + " bytes were staged");
  });
}

TEST(ShmTransport, the_input_of_a_collective_can_be_changed_after_the_wait) {
  expect_no_failure(4, [](Communicator& comm) {
    const int64_t n = 5000, world = comm.world_size();
    at::Tensor staged = at::zeros({n}), gathered = at::zeros({world * n});
    at::Tensor in_arena = comm.empty(world * n), reduced = at::zeros({n});
    for (int step = 0; step < 50; ++step) {
      staged.fill_(100 * step + comm.rank());
      comm.all_gather_into(gathered, staged, "unit").wait();
      staged.fill_(-1);
      for (int rank = 0; rank < world; ++rank)
        require(gathered.narrow(0, rank * n, n).eq(100 * step + rank).all().item<bool>(),
                "another step's values");
      in_arena.fill_(step);
      comm.reduce_scatter_into(reduced, in_arena, "unit").wait();
      in_arena.fill_(-1);
      require(reduced.eq(step * world).all().item<bool>(), "another step's values");
    }
  });
}

// Returns how many bytes of shared memory this process has touched.
int64_t touched() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("RssShmem:", 0) == 0) return std::stoll(line.substr(9)) * 1024;
  }
  return 0;
}

TEST(ShmTransport,
     the_gradients_of_a_training_step_touch_few_arena_bytes_beyond_the_peak_of_live_bytes) {
  expect_no_failure(1, [](Communicator& comm) {
    constexpr int64_t kTable = 6'000'000, kBlock = 2'500'000, kRanks = 8;
    constexpr int64_t kPage = int64_t{1} << 21;
    const int64_t before = touched();
    at::Tensor last;  // the last reduced shard, which lives until the next one is reduced
    const auto reduce = [&](int64_t numel) {
      const MemoryScope whole(MemoryClass::gradients);
      const at::Tensor gradient = comm.empty(numel).zero_();
      const MemoryScope part(MemoryClass::sharded_gradients);
      last = comm.empty(numel / kRanks).zero_();
    };
    reduce(kTable);
    for (int block = 0; block < 12; ++block)
      reduce(kBlock);
    reduce(kTable);
    const int64_t more = touched() - before - live_bytes::peak().total;
    require(more < 2 * kPage, std::to_string(more) + " bytes more");
  });
}

TEST(ShmTransport, an_allocation_that_does_not_fit_in_the_arena_throws) {
  EXPECT_CONTAINS(failure(1, {}, [](Communicator& comm) { comm.empty(int64_t{1} << 50); }),
                  "has no room for 4503599627370496 bytes");
}

TEST(ShmTransport, a_timeout_names_a_rank_that_issued_the_collective_but_does_not_wait_for_it) {
  const auto body = [](Communicator& comm) {
    Handle handle = comm.reduce_scatter_into(at::zeros({8}), comm.empty(16).zero_(), "layers.0");
    if (comm.rank() == 1) pause();
    handle.wait();
  };
  EXPECT_CONTAINS(failure(2, {.timeout = 500ms}, body),
                  "rank 0: reduce_scatter layers.0 (collective #0) timed out after 0.5 s: "
                  "rank 1 called it but has not waited for it\nlikely cause: a handle that");
}

}  // namespace
}  // namespace fsdp
