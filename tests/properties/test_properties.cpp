#include <gtest/gtest.h>
#include <properties/program.h>
#include <properties/verdict.h>

#include <cstdio>
#include <cstdlib>

// Random models, trained on ranks and in one process. ./fsdp test --properties N [--from SEED]
// tries N of them.
namespace fsdp {
namespace {

uint64_t setting(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != 0 ? std::stoull(value) : otherwise;
}

TEST(Properties, hold) {
  const uint64_t count = setting("FSDP_PROPERTIES", 40), first = setting("FSDP_PROPERTIES_FROM", 1);
  for (uint64_t seed = first; seed < first + count && !HasFailure(); ++seed) {
    const Case c = draw(seed);
    EXPECT_EQ(fault_of(c), "") << "seed " << seed << ": " << text(c);
    const uint64_t tried = seed - first + 1;
    if (tried % 50 != 0) continue;
    std::printf("%d of %d cases\n", static_cast<int>(tried), static_cast<int>(count));
    std::fflush(stdout);
  }
}

TEST(Programs, are_right_or_refused) {
  const uint64_t count = setting("FSDP_PROPERTIES", 40), first = setting("FSDP_PROPERTIES_FROM", 1);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const Program program = draw_program(seed);
    const std::string fault = fault_of(program);
    if (fault.empty()) continue;
    std::printf("seed %d: %s\n%s\nlooking for the smallest such program\n", static_cast<int>(seed),
                text(program).c_str(), fault.c_str());
    std::fflush(stdout);
    const Program small = shrink(program);
    FAIL() << "seed " << seed << ": " << text(small) << "\n" << fault_of(small);
  }
}

}  // namespace
}  // namespace fsdp
