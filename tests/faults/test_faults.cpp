#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "injection.h"

// ./fsdp test --faults N [--from SEED] tries N of them.
namespace fsdp {
namespace {

int setting(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != 0 ? std::stoi(value) : otherwise;
}

TEST(InjectedFaults, end_a_training_in_time_with_a_story_and_leave_nothing) {
  const int count = setting("FSDP_FAULTS", 12), first = setting("FSDP_FAULTS_FROM", 1);
  for (int seed = first; seed < first + count; ++seed) {
    const Injection injection = draw(static_cast<uint64_t>(seed));
    const std::string wrong = wrong_end(injection);
    EXPECT_EQ(wrong, "") << "seed " << seed << ", " << text(injection);
    if ((seed - first + 1) % 20 == 0) {
      std::printf("%d of %d faults\n", seed - first + 1, count);
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace fsdp
