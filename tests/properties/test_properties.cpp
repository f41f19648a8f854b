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

TEST(Properties, hold) {
  const std::string given = setting("FSDP_PROPERTY_CASE", "");
  if (!given.empty()) return expect_no_fault(case_of(given), "the given case");
  const int count = std::stoi(setting("FSDP_PROPERTIES", "40"));
  const uint64_t first = std::stoull(setting("FSDP_PROPERTIES_FROM", "1"));
  for (int i = 0; i < count && !HasFailure(); ++i) {
    const uint64_t seed = first + static_cast<uint64_t>(i);
    expect_no_fault(draw(seed), "case " + std::to_string(seed));
    if ((i + 1) % 50 == 0) say(std::to_string(i + 1) + " of " + std::to_string(count) + " cases");
  }
}

TEST(Properties, a_case_is_read_as_it_was_printed) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const std::string line = text(draw(seed));
    EXPECT_EQ(text(case_of(line)), line);
  }
}

TEST(Properties, a_case_that_makes_no_sense_is_refused) {
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      case_of(text);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "it was read";
  };
  const std::string no = "a case can't be read: ";
  EXPECT_EQ(refusal(R"({"wrld": 2})"), no + "it has no \"wrld\"");
  EXPECT_EQ(refusal(R"({"layers": [{"knd": "odd"}]})"), no + "it has no \"knd\"");
  EXPECT_EQ(refusal(R"({"layers": [{"kind": "even"}]})"), no + "kind \"even\"");
  EXPECT_EQ(refusal(R"({"layers": [{"use": "once"}]})"), no + "use \"once\"");
  EXPECT_EQ(refusal(R"({"layers": [{"tied": 0}]})"), no + "a layer is tied to a later one");
  EXPECT_TRUE(refusal("{").starts_with(no)) << refusal("{");
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
