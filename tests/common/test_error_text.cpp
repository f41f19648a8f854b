#include <base/torch.h>
#include <testing/error_text.h>
#include <testing/multi_rank.h>

#include <memory>
#include <unordered_map>

#include "expect_text.h"
#include "in_a_process.h"

// Tests the text that a failure prints about an exception in a rank.

using namespace fsdp;

namespace {

// Returns torch's error for an undefined tensor, with or without the stack that torch adds.
std::string error_of_torch(bool with_stack) {
  try {
    at::Tensor().storage();
  } catch (const c10::Error& error) {
    return with_stack ? error.what() : error.what_without_backtrace();
  }
  return "nothing was thrown";
}

TEST(ErrorText, without_stacks_removes_torchs_stack_trace_from_an_error_text) {
  in_a_process([] {
    const std::string whole = error_of_torch(true), said = error_of_torch(false);
    EXPECT_CONTAINS(whole, "frame #1");
    EXPECT_EQ(without_stacks(whole), said + "\n");
    EXPECT_EQ(without_stacks("it throws \"" + whole + "\".\nafter"),
              "it throws \"" + said + "\n\".\nafter");
  });
  EXPECT_EQ(without_stacks("frame #0: of a picture\n"), "frame #0: of a picture\n");
}

TEST(ErrorText, the_error_text_of_a_rank_explains_the_exception_and_has_no_stack_trace) {
  const auto failure = [](const std::function<void()>& body) {
    return try_ranks(1, [&](TestRank&) { body(); }).failure();
  };
  const std::string text =
      failure([] { EXPECT_NO_THROW(static_cast<void>(at::Tensor().storage())); });
  EXPECT_CONTAINS(text, "UndefinedTensorImpl");
  EXPECT_CONTAINS(text, "rank 0 threw an exception: an undefined tensor was used");
  EXPECT_LACKS(text, "frame #");
  EXPECT_CONTAINS(failure([] { static_cast<void>(std::unordered_map<int, int>().at(3)); }),
                  "called with a key that is not in the map");
}

TEST(ErrorText, the_error_text_explains_a_use_of_freed_memory_without_torchs_advice) {
  const RankRun run = try_ranks(1, [](TestRank&) {
    const at::Tensor tensor = at::empty({4});
    tensor.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
        c10::DataPtr(nullptr, at::Device(at::kCPU)));
    static_cast<void>(tensor.data_ptr<float>());
  });
  EXPECT_CONTAINS(run.failure(),
                  "threw an exception: a parameter was used after reshard(), or before unshard()\n"
                  "  (it says: The tensor has a non-zero number of elements, but its data is not "
                  "allocated yet.)");
  EXPECT_LACKS(run.failure(), "Caffe2");
}

TEST(ErrorText, the_error_text_explains_bad_weak_ptr_as_a_wrong_shared_from_this) {
  struct Object : std::enable_shared_from_this<Object> {};
  const RankRun run = try_ranks(1, [](TestRank&) { Object().shared_from_this(); });
  EXPECT_CONTAINS(run.failure(), "shared_from_this() was called on an object that no shared_ptr ");
  EXPECT_CONTAINS(run.failure(), "(it says: bad_weak_ptr)");
}

}  // namespace
