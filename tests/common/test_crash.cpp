#include <base/torch.h>
#include <testing/memory_limit.h>
#include <testing/multi_rank.h>

#include "expect_text.h"

using namespace fsdp;

namespace {

TEST(Crash, a_test_whose_rank_allocates_without_end_reports_that_it_exceeded_the_memory_limit) {
  const RankRun run = try_ranks(1, [](TestRank&) {
    ASSERT_TRUE(limit_memory(int64_t{1} << 30)) << "not under a sanitizer";
    std::vector<at::Tensor> all;
    for (;;)
      all.push_back(at::zeros({int64_t{1} << 26}));
  });
  if (run.failure().find("not under a sanitizer") != std::string::npos) {
    GTEST_SKIP() << "a sanitizer's memory has no limit";
  }
  EXPECT_CONTAINS(run.failure(), "it exceeded the limit of memory of a test");
}

}  // namespace
