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
// Tolerance in bytes: a third of the limit in expect_no_copies(), which is 3/8 of the model.
constexpr int64_t kNoise = kModel / 8;

at::Tensor tensor_of(int64_t bytes) {
  return at::ones({bytes / 4});
}

// Runs `take` on one rank. Returns how many bytes this rank holds more than before, as JSON with
// the numbers "tensors" and "besides" (in other memory). `take` puts what shall stay alive into the
// vector.
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

std::array<float, kModel / 4> inherited_pages{};

TEST(RetainedMemory, retained_memory_counts_tensors_and_other_memory_separately) {
  expect_taken(taken([](TestRank&, auto& kept) {
                 kept.push_back(keep(tensor_of(kModel)));
                 kept.push_back(keep(std::vector<float>(kModel / 4, 1)));
               }),
               kModel, kModel);
}

TEST(RetainedMemory, retained_memory_does_not_count_freed_memory) {
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

TEST(RetainedMemory, retained_memory_counts_the_borrowed_memory_of_from_blob_as_other_memory) {
  expect_taken(taken([](TestRank&, auto& kept) {
                 auto memory = std::make_shared<std::vector<float>>(kModel / 4, 1);
                 kept.push_back(keep(at::from_blob(memory->data(), {kModel / 4})));
                 kept.push_back(memory);
               }),
               0, kModel);
}

TEST(RetainedMemory, retained_memory_counts_a_page_inherited_by_fork_after_the_rank_writes_to_it) {
  inherited_pages.fill(1);
  expect_taken(taken([](TestRank&, auto&) { inherited_pages.fill(2); }), 0, kModel);
}

// After other ranks have read a tensor in shared memory, several processes map its pages, and the
// kernel no longer counts them as private to this rank. The copy in the rank's own memory must
// still count.
TEST(RetainedMemory, a_copy_of_a_tensor_in_shared_memory_counts_in_full_as_retained_memory) {
  const RankRun run = run_ranks(2, [](TestRank& rank) {
    const auto comm = rank.communicator();
    const RetainedMemory memory;
    const at::Tensor part = comm->empty(kModel / 4).fill_(1);
    at::Tensor whole = at::empty({2 * kModel / 4});
    comm->all_gather_into(whole, part, "unit").wait();
    comm->wait_for_readers();
    whole = at::Tensor();
    const std::shared_ptr<void> copy = keep(std::vector<float>(kModel / 4, 1));
    rank.observe("taken", memory.taken());
  });
  for (const int rank : {0, 1})
    expect_taken(run.at(rank, "taken"), kModel, kModel);
}

TEST(RetainedMemory, retained_memory_fails_the_rank_if_live_bytes_counts_less_than_was_allocated) {
  if (kSanitized) GTEST_SKIP() << "only tensors are counted under a sanitizer";
  const RankRun run = try_ranks(1, [](TestRank& rank) {
    const RetainedMemory memory;
    const at::Tensor kept = tensor_of(kModel);
    live_bytes::remove(MemoryClass::other, kMegabyte, nullptr);
    rank.observe("taken", memory.taken());
  });
  EXPECT_CONTAINS(run.failure(), "fewer bytes of tensors are counted than were allocated");
}

TEST(RetainedMemory,
     a_todo_in_the_body_of_as_far_as_written_ends_only_this_body_and_the_test_continues) {
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
