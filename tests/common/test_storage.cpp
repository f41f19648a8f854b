#include <gtest/gtest.h>
#include <memory/counting_allocator.h>
#include <memory/live_bytes.h>
#include <memory/storage.h>

#include "in_a_process.h"

namespace fsdp {
namespace {

TEST_IN_A_PROCESS(Storage, views_stay_valid_when_their_storage_is_freed_and_regrown) {
  counting_allocator::install();
  const c10::Storage storage = storage_of_no_bytes(c10::kCPU);
  const at::Tensor whole = view_of_storage(storage, 0, {6});
  const at::Tensor part = view_of_storage(storage, 2, {2, 2});
  EXPECT_EQ(live_bytes::now().total, 0);
  for (const float value : {1.0f, 2.0f}) {
    resize_storage(storage, 24);
    EXPECT_EQ(live_bytes::now().total, 24);
    EXPECT_EQ(storage.nbytes(), 24);
    whole.fill_(value);
    EXPECT_TRUE(part.equal(at::full({2, 2}, value)));
    resize_storage(storage, 0);
    EXPECT_EQ(live_bytes::now().total, 0);
    EXPECT_EQ(storage.nbytes(), 0);
    EXPECT_EQ(part.sizes(), at::IntArrayRef({2, 2}));
  }
}

}  // namespace
}  // namespace fsdp
