#include <base/torch.h>
#include <gtest/gtest.h>
#include <memory/counting_allocator.h>
#include <memory/live_bytes.h>
#include <sys/resource.h>
#include <testing/memory_limit.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "in_a_process.h"

namespace fsdp {
namespace {

// In a process of its own: the allocator stays in place until the process ends.
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

TEST_IN_A_PROCESS(LiveBytes, include_allocations_of_other_threads) {
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

// [bytes] of memory that this process has touched and not given back.
int64_t resident() {
  std::ifstream statm("/proc/self/statm");
  int64_t addresses = 0, pages = 0;
  statm >> addresses >> pages;
  return pages * getpagesize();
}

// Fills a tensor of `big` bytes, whose memory is kept, and then many that are too small for it.
void expect_taken_at_most(int64_t big, int64_t most) {
  counted([&] {
    constexpr int64_t kSmall = 100 << 10;
    constexpr int64_t kBesides = 8 << 20;  // what the process takes for other things
    counting_allocator::keep_at_most(64 << 20);
    at::zeros({1 << 20}, at::kByte);  // loads what fills
    const int64_t before = resident();
    at::zeros({big}, at::kByte);
    std::vector<at::Tensor> small;
    while (live_bytes::now().total < big) {
      small.push_back(at::zeros({kSmall}, at::kByte));
      ASSERT_TRUE(kSanitized || resident() - before <= most + kBesides);
    }
  });
}

TEST(LiveBytes, little_is_kept_beyond_a_large_peak_and_released_when_small_ones_need_the_room) {
  expect_taken_at_most(64 << 20, (64 << 20) / 4 * 5);
  expect_taken_at_most(512 << 20, (512 + 64) << 20);
}

TEST_IN_A_PROCESS(LiveBytes, the_same_tensors_again_touch_no_new_memory) {
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

TEST_IN_A_PROCESS(LiveBytes, large_tensors_need_no_reserved_addresses) {
  counting_allocator::install();
  std::ifstream statm("/proc/self/statm");
  rlim_t addresses = 0;  // [pages] of this process
  statm >> addresses;
  const rlim_t most = addresses * getpagesize() + (rlim_t{200} << 20);
  const rlimit limit{most, most};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  const at::Tensor large = at::ones({16 << 20});
  EXPECT_EQ(total(), 64 << 20);
  EXPECT_EQ(large[-1].item<float>(), 1);
}

TEST_IN_A_PROCESS(LiveBytes, an_allocation_that_fails_is_not_counted) {
  counting_allocator::install();
  EXPECT_THROW(at::empty({int64_t{1} << 60}, at::kByte), c10::Error);
  EXPECT_EQ(total(), 0);
  EXPECT_EQ(live_bytes::peak_total(), 0);
}

}  // namespace
}  // namespace fsdp
