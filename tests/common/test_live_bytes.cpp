#include <ATen/native/Resize.h>
#include <base/torch.h>
#include <comm/launcher.h>
#include <gtest/gtest.h>
#include <memory/counting_allocator.h>
#include <memory/live_bytes.h>
#include <memory/reclassify.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
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

TEST(LiveBytes, a_tensor_lies_in_the_memory_of_those_that_were_freed) {
  EXPECT_EQ(failure([] {
              const void* const place = place_of_tensor(9 << 20);
              {
                const at::Tensor first = at::empty({4 << 20}, at::kByte);
                const at::Tensor second = at::empty({3 << 20}, at::kByte);
                if (first.const_data_ptr() != place) throw std::runtime_error("4 of 9 MiB");
              }
              if (place_of_tensor(9 << 20) != place) throw std::runtime_error("9 MiB again");
              require_equal(live_bytes::peak_total(), 9 << 20, "counted as asked for");
            }),
            "");
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
  EXPECT_EQ(failure([&] {
              constexpr int64_t kSmall = 100 << 10;
              constexpr int64_t kBesides = 8 << 20;  // what the process takes for other things
              counting_allocator::keep_at_most(64 << 20);
              at::zeros({1 << 20}, at::kByte);  // loads what fills
              const int64_t before = resident();
              at::zeros({big}, at::kByte);
              std::vector<at::Tensor> small;
              while (live_bytes::now().total < big) {
                small.push_back(at::zeros({kSmall}, at::kByte));
                const int64_t taken = resident() - before;
                if (taken > most + kBesides) {
                  throw std::runtime_error(std::to_string(taken) + " bytes, more than " +
                                           std::to_string(most));
                }
              }
            }),
            "");
}

TEST(LiveBytes, what_is_kept_is_released_when_small_ones_need_the_room) {
  expect_taken_at_most(64 << 20, (64 << 20) / 4 * 5);
}

TEST(LiveBytes, little_is_kept_beyond_a_large_peak) {
  expect_taken_at_most(512 << 20, (512 + 64) << 20);
}

TEST(LiveBytes, the_same_tensors_again_touch_no_new_memory) {
  EXPECT_EQ(failure([] {
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
              const long pages = faults() - before;
              if (pages > 300) throw std::runtime_error(std::to_string(pages) + " pages");
            }),
            "");
}

TEST(LiveBytes, large_tensors_need_no_reserved_addresses) {
  EXPECT_EQ(failure([] {
              std::ifstream statm("/proc/self/statm");
              rlim_t addresses = 0;  // [pages] of this process
              statm >> addresses;
              const rlim_t most = addresses * getpagesize() + (rlim_t{200} << 20);
              const rlimit limit{most, most};
              if (setrlimit(RLIMIT_AS, &limit) != 0) throw std::runtime_error("no limit");
              const at::Tensor large = at::ones({16 << 20});
              require_equal(live_bytes::now().total, 64 << 20, "alive");
              if (large[-1].item<float>() != 1) throw std::runtime_error("wrong values");
            }),
            "");
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
