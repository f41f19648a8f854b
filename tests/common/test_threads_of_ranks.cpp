#include <gtest/gtest.h>
#include <launch/launcher.h>

#include "set_variables.h"
#include "shared_words.h"

namespace fsdp {
namespace {

TEST(ThreadsOfRanks, are_one_unless_the_environment_says_more) {
  const SetVariables set(Variables{{"OMP_NUM_THREADS", ""}});
  SharedWords words;
  launch(1, [&](const RankContext&) {
    words[0] = at::get_num_threads();
    return 0;
  });
  EXPECT_EQ(words[0], 1);
}

}  // namespace
}  // namespace fsdp
