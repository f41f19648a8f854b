#include <gtest/gtest.h>
#include <properties/random_program.h>
#include <properties/verdict.h>

#include <cstdlib>
#include <functional>
#include <iostream>

// Trains random models and runs random programs of users, each on ranks and in one process.
// ./fsdp test --properties N [--from SEED] tries N models and N programs.
namespace fsdp {
namespace {

uint64_t setting(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != 0 ? std::stoull(value) : otherwise;
}

// Calls `body` with one seed after another until a test fails. FSDP_PROPERTIES sets the number of
// seeds; without it there are `otherwise` seeds.
void for_each_seed(const char* what, uint64_t otherwise,
                   const std::function<void(uint64_t seed)>& body) {
  const uint64_t count = setting("FSDP_PROPERTIES", otherwise);
  const uint64_t first = setting("FSDP_PROPERTIES_FROM", 1);
  for (uint64_t tried = 0; tried < count && !testing::Test::HasFailure();) {
    body(first + tried);
    if (++tried % 50 == 0)
      std::cout << tried << " of " << count << ' ' << what << std::endl;  // NOLINT: shown at once
  }
}

TEST(RandomTraining, a_random_training_has_the_bits_of_one_process_and_the_predicted_bytes) {
  for_each_seed("models", 80, [](uint64_t seed) {
    const RandomTraining c = draw(seed);
    EXPECT_EQ(first_difference(c), "") << "seed " << seed << ": " << text(c);
  });
}

TEST(RandomProgram, a_random_user_program_on_ranks_has_the_bits_of_one_process_or_must_throw) {
  for_each_seed("programs", 200, [](uint64_t seed) {
    const RandomProgram program = draw_program(seed);
    if (first_difference(program).empty()) return;
    std::cout << "looking for the shortest program that fails like the program of seed " << seed
              << std::endl;  // NOLINT: shown at once
    const RandomProgram shortest = shrink(program);
    ADD_FAILURE() << "seed " << seed << ": " << text(shortest) << "\n"
                  << first_difference(shortest);
  });
}

}  // namespace
}  // namespace fsdp
