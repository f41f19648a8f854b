#include <memory/live_bytes.h>
#include <memory/storage.h>
#include <memory/storage_guard.h>
#include <testing/multi_rank.h>

#include <sstream>

#include <common/expect_text.h>

namespace fsdp {
namespace {

// A tensor on guarded storage without memory.
at::Tensor guarded(at::IntArrayRef sizes) {
  const c10::Storage storage = storage_of_no_bytes(c10::kCPU);
  const int64_t bytes = c10::multiply_integers(sizes) * int64_t{sizeof(float)};
  guard_storage(storage, "it is away", bytes);
  return view_of_storage(storage, 0, sizes);
}

// Runs `body` in a process of its own: this one runs no torch operator.
void in_a_rank(const std::function<void()>& body) {
  run_ranks(1, [&](TestRank&) { body(); });
}

TEST(StorageGuard, every_access_says_the_message) {
  in_a_rank([] {
    const at::Tensor tensor = guarded({4, 4});
    EXPECT_CONTAINS(error_of([&] { tensor.sum(); }), "it is away");
    EXPECT_CONTAINS(error_of([&] { at::linear(at::ones({2, 4}), tensor); }), "it is away");
    EXPECT_CONTAINS(error_of([&] { at::Tensor(tensor).zero_(); }), "it is away");
    EXPECT_CONTAINS(error_of([&] { tensor.t().clone(); }), "it is away");
    EXPECT_CONTAINS(error_of([&] { tensor[1][2].item<float>(); }), "it is away");
    EXPECT_CONTAINS(error_of([&] { tensor.to(at::kDouble); }), "it is away");
    EXPECT_CONTAINS(error_of([&] { std::ostringstream() << tensor; }), "it is away");
    EXPECT_CONTAINS(error_of([&] { tensor.data_ptr(); }), "it is away");
    EXPECT_TRUE(is_freed(tensor));
  });
}

TEST(StorageGuard, leaves_the_count_of_live_bytes_exact) {
  in_a_rank([] {
    const int64_t before = live_bytes::now().total;
    const at::Tensor tensor = guarded({400});
    EXPECT_EQ(live_bytes::now().total, before);
    resize_storage(tensor.storage(), 1600);
    EXPECT_EQ(live_bytes::now().total, before + 1600);
    resize_storage(tensor.storage(), 0);
    EXPECT_EQ(live_bytes::now().total, before);
  });
}

}  // namespace
}  // namespace fsdp
