#include <base/torch.h>
#include <gtest/gtest.h>
#include <memory/counting_allocator.h>
#include <memory/live_bytes.h>
#include <memory/reclassify.h>
#include <sys/resource.h>
#include <testing/memory_limit.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "in_a_process.h"

namespace fsdp {
namespace {

// Runs `body` over the counting allocator, in a process of its own because the allocator cannot be
// removed.
template <class Body>
void counted(Body body) {
  in_a_process([&] {
    counting_allocator::install();
    body();
  });
}

int64_t total() {
  return live_bytes::now().total;
}

TEST_IN_A_PROCESS(CountingAllocator,
                  blocks_that_other_threads_allocate_and_free_leave_no_live_bytes) {
  counting_allocator::install();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      MemoryScope scope(i % 2 ? MemoryClass::shards : MemoryClass::gathered);
      for (int k = 0; k < 200; ++k)
        at::empty({300'000 + k % 3});
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(total(), 0) << "after all were freed";
}

int64_t alive(MemoryClass cls) {
  return live_bytes::now()[cls];
}

at::Tensor made(MemoryClass cls, int64_t numel) {
  const MemoryScope scope(cls);
  return at::empty({numel});
}

TEST_IN_A_PROCESS(CountingAllocator,
                  a_block_counts_in_the_class_of_its_allocation_until_its_last_view_is_freed) {
  counting_allocator::install();
  at::Tensor rest = at::empty({3}), gathered = made(MemoryClass::gathered, 5);
  at::Tensor view = gathered.narrow(0, 4, 1);
  {
    const MemoryScope outer(MemoryClass::gathered);
    const at::Tensor shard = made(MemoryClass::shards, 7), more = at::empty({1});
    EXPECT_EQ(alive(MemoryClass::shards), 28);
    EXPECT_EQ(alive(MemoryClass::gathered), 24);
    EXPECT_EQ(alive(MemoryClass::other), 12);
    EXPECT_EQ(total(), 64);
  }
  EXPECT_EQ(alive(MemoryClass::shards), 0);
  const MemoryScope another(MemoryClass::optimizer_state);
  gathered.reset();
  EXPECT_EQ(alive(MemoryClass::gathered), 20) << "a view of one element keeps all of it";
  view.reset();
  EXPECT_EQ(alive(MemoryClass::gathered), 0);
  live_bytes::reclassify(rest.storage().data_ptr(), MemoryClass::gradients);
  EXPECT_EQ(alive(MemoryClass::other), 0);
  EXPECT_EQ(alive(MemoryClass::gradients), 12);
  rest.reset();
  EXPECT_EQ(total(), 0);
}

TEST_IN_A_PROCESS(CountingAllocator, each_memory_class_has_a_peak_in_each_phase) {
  counting_allocator::install();
  const at::Tensor shard = made(MemoryClass::shards, 10);
  live_bytes::enter(Phase::forward);
  made(MemoryClass::gathered, 100);
  made(MemoryClass::other, 50);
  const LiveBytes forward = live_bytes::peak();
  EXPECT_EQ(forward[MemoryClass::shards], 40);
  EXPECT_EQ(forward[MemoryClass::gathered], 400);
  EXPECT_EQ(forward[MemoryClass::other], 200);
  EXPECT_EQ(forward.total, 440);
  live_bytes::enter(Phase::backward);
  EXPECT_EQ(live_bytes::peak().total, 40) << "at the start of backward";
  made(MemoryClass::gathered, 20);
  live_bytes::enter(Phase::forward);
  made(MemoryClass::gathered, 30);
  EXPECT_EQ(live_bytes::peak().total, 160) << "in the second forward";
  EXPECT_EQ(live_bytes::peak(Phase::forward).total, 440) << "over both";
  EXPECT_EQ(live_bytes::peak(Phase::backward).total, 120);
  {
    const live_bytes::ScopedPeaks scoped;
    live_bytes::enter(Phase::backward);
    made(MemoryClass::gathered, 1000);
  }
  live_bytes::reset(Phase::backward);
  EXPECT_EQ(live_bytes::peak(Phase::backward).total, 0) << "forgotten";
  EXPECT_EQ(live_bytes::peak(Phase::forward).total, 440) << "not forgotten";
  EXPECT_EQ(live_bytes::peak_total(), 440) << "a rehearsal is not a part of the run";
}

// Returns how many bytes of memory this process has touched and not returned to the kernel.
int64_t resident() {
  std::ifstream statm("/proc/self/statm");
  int64_t addresses = 0, pages = 0;
  statm >> addresses >> pages;
  return pages * getpagesize();
}

// Fills and frees a tensor of `big` bytes, whose memory the allocator keeps for later tensors of at
// least 128 KiB. Then fills smaller tensors, which cannot use that memory. Expects that the process
// never takes more than `most` bytes beyond what it had before, so the allocator must return kept
// memory to the system.
void expect_taken_at_most(int64_t big, int64_t most) {
  counted([&] {
    constexpr int64_t kSmall = 100 << 10;
    // Number of bytes that the process may take besides the tensors.
    constexpr int64_t kBesides = 8 << 20;
    counting_allocator::keep_at_most(64 << 20);
    // Loads the code that fills a tensor, so that `before` includes the memory of this code.
    at::zeros({1 << 20}, at::kByte);
    const int64_t before = resident();
    at::zeros({big}, at::kByte);
    std::vector<at::Tensor> small;
    while (live_bytes::now().total < big) {
      small.push_back(at::zeros({kSmall}, at::kByte));
      ASSERT_TRUE(kSanitized || resident() - before <= most + kBesides);
    }
  });
}

TEST(CountingAllocator,
     the_counting_allocator_frees_kept_memory_of_large_tensors_as_small_tensors_need_more) {
  expect_taken_at_most(64 << 20, (64 << 20) / 4 * 5);
  expect_taken_at_most(512 << 20, (512 + 64) << 20);
}

TEST_IN_A_PROCESS(CountingAllocator, allocating_the_same_tensors_again_touches_no_new_memory) {
  counting_allocator::install();
  const auto faults = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
  };
  const auto step = [] {
    std::vector<at::Tensor> saved;
    for (const int64_t mega : {9, 1, 4, 2})
      saved.push_back(at::zeros({mega << 18}));
    const at::Tensor first = at::zeros({10 << 18});
    saved.resize(2);
    at::zeros({11 << 18});
  };
  step();
  const long before = faults();
  for (int i = 0; i < 20; ++i)
    step();
  EXPECT_LE(faults() - before, 300) << "pages";
}

TEST_IN_A_PROCESS(CountingAllocator, a_large_tensor_can_be_allocated_in_a_limited_address_space) {
  counting_allocator::install();
  std::ifstream statm("/proc/self/statm");
  rlim_t addresses = 0;  // size of this process's address space, in pages
  statm >> addresses;
  const rlim_t most = addresses * getpagesize() + (rlim_t{200} << 20);
  const rlimit limit{most, most};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  const at::Tensor large = at::ones({16 << 20});
  EXPECT_EQ(total(), 64 << 20);
  EXPECT_EQ(large[-1].item<float>(), 1);
}

TEST_IN_A_PROCESS(CountingAllocator, a_failed_allocation_does_not_count_in_live_bytes) {
  counting_allocator::install();
  EXPECT_THROW(at::empty({int64_t{1} << 60}, at::kByte), c10::Error);
  EXPECT_EQ(total(), 0);
  EXPECT_EQ(live_bytes::peak_total(), 0);
}

}  // namespace
}  // namespace fsdp
