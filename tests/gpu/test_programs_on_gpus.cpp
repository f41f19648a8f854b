#include <properties/program.h>

#include "gpus.h"

namespace fsdp {
namespace {

// The users' programs of tests/properties. Of W ranks on fewer GPUs, several share one.
void are_right_or_refused(uint64_t first, uint64_t count) {
  for (uint64_t seed = first; seed < first + count; ++seed) {
    Program program = draw_program(seed);
    program.cuda = true;
    if (!fault_of(program).empty())
      ADD_FAILURE() << "seed " << seed << ": " << text(program) << "\n" << fault_of(program);
  }
}

TEST(ProgramsOn1GPU, users_programs_are_right_or_refused) {
  SKIP_WITHOUT_GPUS(1);
  are_right_or_refused(1, 40);
}

TEST(ProgramsOn2GPUs, users_programs_are_right_or_refused_over_nccl) {
  SKIP_WITHOUT_GPUS(2);
  are_right_or_refused(41, 40);
}

}  // namespace
}  // namespace fsdp
