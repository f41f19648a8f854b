#include <gtest/gtest.h>
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

}  // namespace
}  // namespace fsdp
