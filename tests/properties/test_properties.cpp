#include <properties/verdict.h>
#include <testing/multi_rank.h>

#include <cstdlib>

// Random models, trained on ranks and in one process. ./fsdp test --properties N tries N of them,
// ./fsdp test --case CASE one.
namespace fsdp {
namespace {

std::string setting(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != 0 ? value : otherwise;
}

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void expect_no_fault(const Case& c, const std::string& which) {
  if (fault_of(c).empty()) return;
  const Case least = simplest_with_a_fault(c);
  ADD_FAILURE() << which << ": " << fault_of(least) << "\n./fsdp test --case '" << text(least)
                << "'";
}

TEST(Properties, hold_for_random_cases) {
  const int count = std::stoi(setting("FSDP_PROPERTIES", "40"));
  const uint64_t first = std::stoull(setting("FSDP_PROPERTIES_FROM", "1"));
  for (int i = 0; i < count && !HasFailure(); ++i) {
    const uint64_t seed = first + static_cast<uint64_t>(i);
    expect_no_fault(draw(seed), "case " + std::to_string(seed));
    if ((i + 1) % 50 == 0) say(std::to_string(i + 1) + " of " + std::to_string(count) + " cases");
  }
}

TEST(Properties, hold_for_the_given_case) {
  const std::string given = setting("FSDP_PROPERTY_CASE", "");
  if (given.empty()) GTEST_SKIP() << "no case is given (./fsdp test --case CASE)";
  expect_no_fault(case_of(given), "the given case");
}

TEST(Properties, a_case_is_read_as_it_was_printed) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const std::string line = text(draw(seed));
    EXPECT_EQ(text(case_of(line)), line);
  }
}

TEST(Properties, every_simpler_case_is_simpler_still) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Case c = draw(seed);
    int steps = 0;
    for (std::vector<Case> next = simpler(c); !next.empty(); next = simpler(c), ++steps)
      c = next.back();
    EXPECT_EQ(c.layers.size(), 1U);
    EXPECT_LT(steps, 200);
    EXPECT_EQ(text(c), text(Case()));
  }
}

}  // namespace
}  // namespace fsdp
