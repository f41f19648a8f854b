#include <ATen/native/Resize.h>
#include <base/torch.h>
#include <comm/launcher.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <memory/counting_allocator.h>
#include <memory/live_bytes.h>
#include <memory/reclassify.h>

#include <functional>
#include <stdexcept>
#include <thread>

namespace fsdp {
namespace {

// In a process of its own: the allocator stays in place until the process ends.
std::string failure(const std::function<void()>& body) {
  auto result = launch(1, [&](const RankContext&) {
    at::set_num_threads(1);
    counting_allocator::install();
    body();
    return 0;
  });
  return result.ok() ? "" : result.ranks[0].text();
}

void require_equal(int64_t measured, int64_t expected, const std::string& what) {
  if (measured == expected) return;
  throw std::runtime_error(what + ": " + std::to_string(measured) + " bytes, expected " +
                           std::to_string(expected));
}

int64_t alive(MemoryClass cls) {
  return live_bytes::now()[cls];
}

void resize(const at::Tensor& tensor, int64_t bytes) {
  at::native::resize_bytes_nocuda(tensor.storage(), bytes);
}

TEST(LiveBytes, count_the_bytes_of_each_tensor_in_its_class) {
  EXPECT_EQ(failure([] {
              at::Tensor rest = at::empty({3});
              MemoryScope outer(MemoryClass::gathered);
              at::Tensor gathered = at::empty({5});
              {
                MemoryScope inner(MemoryClass::shards);
                at::Tensor shard = at::empty({7});
                require_equal(alive(MemoryClass::shards), 28, "shards");
              }
              at::Tensor more = at::empty({1});
              require_equal(alive(MemoryClass::shards), 0, "shards after their end");
              require_equal(alive(MemoryClass::gathered), 24, "gathered");
              require_equal(alive(MemoryClass::rest), 12, "rest");
              require_equal(live_bytes::now().total, 36, "total");
            }),
            "");
}

TEST(LiveBytes, a_block_stays_in_the_class_in_which_it_was_allocated) {
  EXPECT_EQ(failure([] {
              at::Tensor tensor;
              {
                MemoryScope scope(MemoryClass::gradients);
                tensor = at::empty({10});
              }
              MemoryScope scope(MemoryClass::optimizer_state);
              tensor.reset();
              require_equal(alive(MemoryClass::gradients), 0, "gradients");
              require_equal(alive(MemoryClass::optimizer_state), 0, "optimizer state");
            }),
            "");
}

TEST(LiveBytes, resizing_a_storage_to_zero_frees_it) {
  EXPECT_EQ(failure([] {
              for (int64_t bytes : {400, 40'000'000}) {
                at::Tensor tensor = at::empty({bytes / 4});
                require_equal(live_bytes::now().total, bytes, "made");
                resize(tensor, 0);
                require_equal(live_bytes::now().total, 0, "freed");
                resize(tensor, bytes);
                require_equal(live_bytes::now().total, bytes, "regrown");
                tensor.fill_(1);
              }
            }),
            "");
}

TEST(LiveBytes, a_view_keeps_its_storage_alive) {
  EXPECT_EQ(failure([] {
              at::Tensor tensor = at::empty({100});
              at::Tensor view = tensor.narrow(0, 0, 1);
              tensor.reset();
              require_equal(live_bytes::now().total, 400, "with a view");
              view.reset();
              require_equal(live_bytes::now().total, 0, "without");
            }),
            "");
}

TEST(LiveBytes, each_class_has_its_own_peak_in_each_phase) {
  EXPECT_EQ(failure([] {
              auto make = [](MemoryClass cls, int64_t numel) {
                MemoryScope scope(cls);
                return at::empty({numel});
              };
              at::Tensor shard = make(MemoryClass::shards, 10);
              live_bytes::enter(Phase::forward);
              make(MemoryClass::gathered, 100);
              make(MemoryClass::rest, 50);
              auto forward = live_bytes::peak();
              require_equal(forward[MemoryClass::shards], 40, "shards in forward");
              require_equal(forward[MemoryClass::gathered], 400, "gathered in forward");
              require_equal(forward[MemoryClass::rest], 200, "rest in forward");
              require_equal(forward.total, 440, "total in forward");
              live_bytes::enter(Phase::backward);
              require_equal(live_bytes::peak().total, 40, "at the start of backward");
              make(MemoryClass::gathered, 20);
              live_bytes::enter(Phase::forward);
              make(MemoryClass::gathered, 30);
              require_equal(live_bytes::peak().total, 160, "in the second forward");
              require_equal(live_bytes::peak(Phase::forward).total, 440, "over both");
              require_equal(live_bytes::peak(Phase::backward).total, 120, "backward");
              live_bytes::reset(Phase::backward);
              require_equal(live_bytes::peak(Phase::backward).total, 0, "forgotten");
              require_equal(live_bytes::peak(Phase::forward).total, 440, "not forgotten");
              require_equal(live_bytes::peak_total(), 440, "of the whole run");
            }),
            "");
}

TEST(LiveBytes, a_tensor_can_move_to_another_class) {
  EXPECT_EQ(failure([] {
              const at::Tensor tensor = at::empty({25});  // 100 bytes
              live_bytes::reclassify(tensor.storage().data_ptr(), MemoryClass::gradients);
              require_equal(live_bytes::now()[MemoryClass::rest], 0, "left the old class");
              require_equal(live_bytes::now()[MemoryClass::gradients], 100, "came to the new one");
              require_equal(live_bytes::now().total, 100, "in all");
            }),
            "");
}

TEST(LiveBytes, include_allocations_of_other_threads) {
  EXPECT_EQ(failure([] {
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
              require_equal(live_bytes::now().total, 0, "after all were freed");
            }),
            "");
}

TEST(LiveBytes, the_cache_of_freed_blocks_does_not_overwrite_tensors) {
  EXPECT_EQ(failure([] {
              std::vector<at::Tensor> tensors;
              for (int i = 0; i < 60; ++i) {
                tensors.push_back(at::full({300'000 + i % 4}, i));
                if (i % 3 == 2) tensors.erase(tensors.begin());
              }
              for (size_t i = 0; i < tensors.size(); ++i) {
                if (!tensors[i].eq(20 + static_cast<int>(i)).all().item<bool>()) {
                  throw std::runtime_error("tensor " + std::to_string(i) + " was overwritten");
                }
              }
            }),
            "");
}

// Where a tensor of `bytes` lies, which is freed at once.
const void* place_of_tensor(int64_t bytes) {
  return at::empty({bytes}, at::kByte).const_data_ptr();
}

TEST(LiveBytes, a_tensor_takes_the_freed_block_of_one_that_is_a_little_larger) {
  EXPECT_EQ(failure([] {
              const void* const place = place_of_tensor(9 << 20);
              if (place_of_tensor(8 << 20) != place) throw std::runtime_error("8 of 9 MiB");
              if (place_of_tensor(9 << 20) != place) throw std::runtime_error("9 MiB again");
              if (place_of_tensor(7 << 20) == place) throw std::runtime_error("7 of 9 MiB");
              require_equal(live_bytes::peak_total(), 9 << 20, "counted as asked for");
            }),
            "");
}

// Of all blocks that this process has of malloc(), alive or kept; 0 under the address sanitizer.
int64_t bytes_of_malloc() {
  const auto info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

// Allocates a block of `big` bytes, which is freed at once and kept, and then small ones.
void expect_taken_at_most(int64_t big, int64_t most) {
  EXPECT_EQ(failure([&] {
              constexpr int64_t kSmall = 512 << 10;
              constexpr int64_t kPages = 4 << 20;  // what malloc() adds to 500 blocks
              const int64_t before = bytes_of_malloc();
              at::empty({big}, at::kByte);
              std::vector<at::Tensor> small;
              for (int i = 0; i < 500; ++i) {
                small.push_back(at::empty({kSmall}, at::kByte));
                const int64_t taken = bytes_of_malloc() - before;
                if (taken > std::max(most, (i + 1) * kSmall / 4 * 5) + kPages) {
                  throw std::runtime_error(std::to_string(taken) + " bytes, more than " +
                                           std::to_string(most));
                }
              }
            }),
            "");
}

TEST(LiveBytes, kept_blocks_are_released_when_small_ones_need_the_room) {
  expect_taken_at_most(64 << 20, (64 << 20) / 4 * 5);
}

TEST(LiveBytes, little_is_kept_beyond_a_large_peak) {
  expect_taken_at_most(1 << 30, (1 << 30) + (64 << 20));
}

TEST(LiveBytes, an_allocation_that_fails_is_not_counted) {
  EXPECT_EQ(failure([] {
              bool failed = false;
              try {
                at::empty({int64_t{1} << 60}, at::kByte);
              } catch (const c10::Error&) {
                failed = true;
              }
              if (!failed) throw std::runtime_error("nobody has 2^60 bytes");
              require_equal(live_bytes::now().total, 0, "alive");
              require_equal(live_bytes::peak_total(), 0, "peak");
            }),
            "");
}

}  // namespace
}  // namespace fsdp
