#include <comm/communicator.h>
#include <gtest/gtest.h>
#include <launch/launcher.h>
#include <launch/rank_context.h>
#include <unistd.h>

#include <cstdio>

#include "rank_failure.h"

namespace fsdp {
namespace {

TEST(RankOutput, a_rank_fails_if_its_output_cannot_be_written) {
  const auto print_to = [](const char* path) {
    return failure(launch(2, [&](const RankContext& context) {
      if (context.rank == 1) return 0;
      return std::freopen(path, "w", stdout) == nullptr || std::puts("a line") < 0 ? 1 : 0;
    }));
  };
  EXPECT_EQ(print_to("/dev/full"), "rank 0 failed: standard output: No space left on device");
  EXPECT_EQ(print_to("/dev/null"), "");
  const auto close_and_print = [](const RankContext&) {
    close(STDOUT_FILENO);  // a closed standard output discards what is printed, without an error
    std::puts("a line");
    return 0;
  };
  EXPECT_EQ(failure(launch(1, close_and_print)), "");
}

TEST(RankOutput, a_rank_ends_by_sigpipe_if_its_output_has_no_reader) {
  const auto print = [](Communicator&) {
    int ends[2];
    require(pipe(ends) == 0, "pipe");
    close(ends[0]);
    dup2(ends[1], STDOUT_FILENO);
    std::puts("a line");
  };
  EXPECT_EQ(failure(1, {.backend = "gloo"}, print), "rank 0 was killed by signal 13 (Broken pipe)");
}

}  // namespace
}  // namespace fsdp
