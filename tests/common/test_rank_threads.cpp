#include <gtest/gtest.h>
#include <launch/launcher.h>

#include "set_variables.h"
#include "shared_words.h"

namespace fsdp {
namespace {

TEST(RankThreads, torch_uses_one_thread_in_a_rank_if_omp_num_threads_is_not_set) {
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
