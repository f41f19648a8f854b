#include <ATen/native/Resize.h>
#include <base/torch.h>
#include <gtest/gtest.h>
#include <memory/counting_allocator.h>
#include <memory/live_bytes.h>
#include <memory/reclassify.h>
#include <sys/resource.h>
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

int64_t alive(MemoryClass cls) {
  return live_bytes::now()[cls];
}

void resize(const at::Tensor& tensor, int64_t bytes) {
  at::native::resize_bytes_nocuda(tensor.storage(), bytes);
}

TEST(LiveBytes, count_the_bytes_of_each_tensor_in_its_class) {
  counted([] {
    at::Tensor rest = at::empty({3});
    MemoryScope outer(MemoryClass::gathered);
    at::Tensor gathered = at::empty({5});
    {
      MemoryScope inner(MemoryClass::shards);
      at::Tensor shard = at::empty({7});
      EXPECT_EQ(alive(MemoryClass::shards), 28);
    }
    at::Tensor more = at::empty({1});
    EXPECT_EQ(alive(MemoryClass::shards), 0) << "shards after their end";
    EXPECT_EQ(alive(MemoryClass::gathered), 24);
    EXPECT_EQ(alive(MemoryClass::rest), 12);
    EXPECT_EQ(total(), 36);
  });
}

TEST(LiveBytes, a_block_stays_in_the_class_in_which_it_was_allocated) {
  counted([] {
    at::Tensor tensor;
    {
      MemoryScope scope(MemoryClass::gradients);
      tensor = at::empty({10});
    }
    MemoryScope scope(MemoryClass::optimizer_state);
    tensor.reset();
    EXPECT_EQ(alive(MemoryClass::gradients), 0);
    EXPECT_EQ(alive(MemoryClass::optimizer_state), 0);
  });
}

TEST(LiveBytes, resizing_a_storage_to_zero_frees_it) {
  counted([] {
    for (int64_t bytes : {400, 40'000'000}) {
      at::Tensor tensor = at::empty({bytes / 4});
      EXPECT_EQ(total(), bytes);
      resize(tensor, 0);
      EXPECT_EQ(total(), 0) << "freed";
      resize(tensor, bytes);
      EXPECT_EQ(total(), bytes) << "regrown";
      tensor.fill_(1);
    }
  });
}

TEST(LiveBytes, a_view_keeps_its_storage_alive) {
  counted([] {
    at::Tensor tensor = at::empty({100});
    at::Tensor view = tensor.narrow(0, 0, 1);
    tensor.reset();
    EXPECT_EQ(total(), 400) << "with a view";
    view.reset();
    EXPECT_EQ(total(), 0);
  });
}

TEST(LiveBytes, each_class_has_its_own_peak_in_each_phase) {
  counted([] {
    auto make = [](MemoryClass cls, int64_t numel) {
      MemoryScope scope(cls);
      return at::empty({numel});
    };
    at::Tensor shard = make(MemoryClass::shards, 10);
    live_bytes::enter(Phase::forward);
    make(MemoryClass::gathered, 100);
    make(MemoryClass::rest, 50);
    auto forward = live_bytes::peak();
    EXPECT_EQ(forward[MemoryClass::shards], 40) << "shards in forward";
    EXPECT_EQ(forward[MemoryClass::gathered], 400) << "gathered in forward";
    EXPECT_EQ(forward[MemoryClass::rest], 200) << "rest in forward";
    EXPECT_EQ(forward.total, 440) << "total in forward";
    live_bytes::enter(Phase::backward);
    EXPECT_EQ(live_bytes::peak().total, 40) << "at the start of backward";
    make(MemoryClass::gathered, 20);
    live_bytes::enter(Phase::forward);
    make(MemoryClass::gathered, 30);
    EXPECT_EQ(live_bytes::peak().total, 160) << "in the second forward";
    EXPECT_EQ(live_bytes::peak(Phase::forward).total, 440) << "over both";
    EXPECT_EQ(live_bytes::peak(Phase::backward).total, 120);
    live_bytes::reset(Phase::backward);
    EXPECT_EQ(live_bytes::peak(Phase::backward).total, 0) << "forgotten";
    EXPECT_EQ(live_bytes::peak(Phase::forward).total, 440) << "not forgotten";
    EXPECT_EQ(live_bytes::peak_total(), 440) << "of the whole run";
  });
}

TEST(LiveBytes, a_tensor_can_move_to_another_class) {
  counted([] {
    const at::Tensor tensor = at::empty({25});  // 100 bytes
    live_bytes::reclassify(tensor.storage().data_ptr(), MemoryClass::gradients);
    EXPECT_EQ(live_bytes::now()[MemoryClass::rest], 0) << "left the old class";
    EXPECT_EQ(live_bytes::now()[MemoryClass::gradients], 100) << "came to the new one";
    EXPECT_EQ(total(), 100) << "in all";
  });
}

TEST(LiveBytes, include_allocations_of_other_threads) {
  counted([] {
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
  });
}

TEST(LiveBytes, the_cache_of_freed_blocks_does_not_overwrite_tensors) {
  counted([] {
    std::vector<at::Tensor> tensors;
    for (int i = 0; i < 60; ++i) {
      tensors.push_back(at::full({300'000 + i % 4}, i));
      if (i % 3 == 2) tensors.erase(tensors.begin());
    }
    for (size_t i = 0; i < tensors.size(); ++i)
      EXPECT_TRUE(tensors[i].eq(20 + static_cast<int>(i)).all().item<bool>()) << "tensor " << i;
  });
}

// Where a tensor of `bytes` lies, which is freed at once.
const void* place_of_tensor(int64_t bytes) {
  return at::empty({bytes}, at::kByte).const_data_ptr();
}

TEST(LiveBytes, a_tensor_lies_in_the_memory_of_those_that_were_freed) {
  counted([] {
    const void* const place = place_of_tensor(9 << 20);
    {
      const at::Tensor first = at::empty({4 << 20}, at::kByte);
      const at::Tensor second = at::empty({3 << 20}, at::kByte);
      EXPECT_EQ(first.const_data_ptr(), place);
    }
    EXPECT_EQ(place_of_tensor(9 << 20), place);
    EXPECT_EQ(live_bytes::peak_total(), 9 << 20) << "counted as asked for";
  });
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
      ASSERT_LE(resident() - before, most + kBesides);
    }
  });
}

TEST(LiveBytes, little_is_kept_beyond_a_large_peak_and_released_when_small_ones_need_the_room) {
  expect_taken_at_most(64 << 20, (64 << 20) / 4 * 5);
  expect_taken_at_most(512 << 20, (512 + 64) << 20);
}

TEST(LiveBytes, the_same_tensors_again_touch_no_new_memory) {
  counted([] {
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
  });
}

TEST(LiveBytes, large_tensors_need_no_reserved_addresses) {
  counted([] {
    std::ifstream statm("/proc/self/statm");
    rlim_t addresses = 0;  // [pages] of this process
    statm >> addresses;
    const rlim_t most = addresses * getpagesize() + (rlim_t{200} << 20);
    const rlimit limit{most, most};
    ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    const at::Tensor large = at::ones({16 << 20});
    EXPECT_EQ(total(), 64 << 20);
    EXPECT_EQ(large[-1].item<float>(), 1);
  });
}

TEST(LiveBytes, an_allocation_that_fails_is_not_counted) {
  counted([] {
    EXPECT_THROW(at::empty({int64_t{1} << 60}, at::kByte), c10::Error);
    EXPECT_EQ(total(), 0);
    EXPECT_EQ(live_bytes::peak_total(), 0);
  });
}

}  // namespace
}  // namespace fsdp
