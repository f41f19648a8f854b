#include <properties/random_program.h>

#include "gpus.h"

namespace fsdp {
namespace {

// Runs the random programs of tests/properties on GPUs, for `count` seeds from `first`. If there
// are fewer GPUs than ranks, ranks share a GPU.
void expect_right_or_refused(uint64_t first, uint64_t count) {
  for (uint64_t seed = first; seed < first + count; ++seed) {
    RandomProgram program = draw_program(seed);
    program.cuda = true;
    if (!first_difference(program).empty())
      ADD_FAILURE() << "seed " << seed << ": " << text(program) << "\n"
                    << first_difference(program);
  }
}

TEST(RandomProgramOn1GPU, a_random_program_on_a_gpu_matches_one_process_or_throws) {
  SKIP_WITHOUT_GPUS(1);
  expect_right_or_refused(1, 40);
}

TEST(RandomProgramOn2GPUs, a_random_program_over_nccl_matches_one_process_or_throws) {
  SKIP_WITHOUT_GPUS(2);
  expect_right_or_refused(41, 40);
}

}  // namespace
}  // namespace fsdp
