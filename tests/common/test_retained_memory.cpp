#include <base/todo.h>
#include <base/torch.h>
#include <memory/live_bytes.h>
#include <testing/memory_limit.h>
#include <testing/multi_rank.h>
#include <testing/retained_memory.h>

#include <array>
#include <memory>
#include <vector>

#include "expect_text.h"

using namespace fsdp;

namespace {

constexpr int64_t kMegabyte = int64_t{1} << 20;
constexpr int64_t kModel = 14 * kMegabyte;
constexpr int64_t kNoise = kModel / 8;  // a third of what the tests of tasks allow

at::Tensor tensor_of(int64_t bytes) {
  return at::ones({bytes / 4});
}

// What a rank has taken after `take`, which keeps what it takes in the vector.
nlohmann::json taken(
    const std::function<void(TestRank&, std::vector<std::shared_ptr<void>>&)>& take) {
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    std::vector<std::shared_ptr<void>> kept;
    const RetainedMemory memory;
    take(rank, kept);
    rank.observe("taken", memory.taken());
  });
  return run.at(0, "taken");
}

void expect_taken(const nlohmann::json& taken, int64_t tensors, int64_t besides) {
  EXPECT_EQ(taken.at("tensors"), tensors);
  const double counted = kSanitized ? 0 : static_cast<double>(besides);
  EXPECT_NEAR(taken.at("besides").get<double>(), counted, kNoise);
}

template <class T>
std::shared_ptr<void> keep(T value) {
  return std::make_shared<T>(std::move(value));
}

std::array<float, kModel / 4> page_of_everybody{};

TEST(RetainedMemory, counts_tensors_and_what_is_none_apart) {
  expect_taken(taken([](TestRank&, auto& kept) {
                 kept.push_back(keep(tensor_of(kModel)));
                 kept.push_back(keep(std::vector<float>(kModel / 4, 1)));
               }),
               kModel, kModel);
}

TEST(RetainedMemory, does_not_count_what_is_freed) {
  expect_taken(taken([](TestRank&, auto& kept) {
                 for (int i = 0; i < 16; ++i) {
                   tensor_of(kModel);
                   std::vector<float>(kModel / 4, 1);
                   for (int block = 0; block < 200; ++block)
                     kept.push_back(keep(std::vector<float>(25'000, 1)));
                   kept.clear();
                 }
               }),
               0, 0);
}

TEST(RetainedMemory, counts_the_memory_under_a_tensor_that_has_no_allocator) {
  expect_taken(taken([](TestRank&, auto& kept) {
                 auto memory = std::make_shared<std::vector<float>>(kModel / 4, 1);
                 kept.push_back(keep(at::from_blob(memory->data(), {kModel / 4})));
                 kept.push_back(memory);
               }),
               0, kModel);
}

TEST(RetainedMemory, counts_pages_that_the_test_had_before_the_rank_changed_them) {
  page_of_everybody.fill(1);
  expect_taken(taken([](TestRank&, auto&) { page_of_everybody.fill(2); }), 0, kModel);
}

// The other ranks map what they have read: it is no longer this rank's alone.
TEST(RetainedMemory, counts_no_copy_less_because_tensors_lie_in_shared_memory) {
  const RankRun run = run_ranks(2, [](TestRank& rank) {
    const auto comm = rank.communicator();
    const RetainedMemory memory;
    const at::Tensor part = comm->empty(kModel / 4).fill_(1);
    at::Tensor whole = at::empty({2 * kModel / 4});
    comm->all_gather_into(whole, part, "unit").wait();
    comm->wait_for_readers();
    whole = at::Tensor();
    const std::vector<float> copy(kModel / 4, 1);
    rank.observe("taken", memory.taken());
  });
  for (const int rank : {0, 1})
    expect_taken(run.at(rank, "taken"), kModel, kModel);
}

TEST(RetainedMemory, ends_the_test_if_fewer_bytes_are_counted_than_were_allocated) {
  if (kSanitized) GTEST_SKIP() << "nothing but tensors is counted under a sanitizer";
  const RankRun run = try_ranks(1, [](TestRank& rank) {
    const RetainedMemory memory;
    const at::Tensor kept = tensor_of(kModel);
    live_bytes::remove(MemoryClass::other, kMegabyte, nullptr);
    rank.observe("taken", memory.taken());
  });
  EXPECT_CONTAINS(run.failure(), "fewer bytes of tensors are counted than were allocated");
}

TEST(RetainedMemory, an_unwritten_function_ends_a_part_and_not_the_test) {
  const RankRun run = run_ranks(2, [](TestRank& rank) {
    as_far_as_written([&] {
      rank.observe("before", 1);
      todo("f", "1.1");
    });
    rank.observe("after", 1);
  });
  expect_on_all_ranks(run, "before", 1);
  expect_on_all_ranks(run, "after", 1);
}

}  // namespace
