#include <gtest/gtest.h>

#include <common/temporary_folder.h>

#include "example_output.h"

namespace fsdp {
namespace {

double loss_of_step(const std::string& output, int step) {
  const std::string label = "step " + std::to_string(step) + ": ";
  const size_t place = output.find(label);
  EXPECT_NE(place, std::string::npos) << output;
  return place == std::string::npos ? -1 : std::stod(output.substr(place + label.size()));
}

TEST(OwnTraining, a_second_run_of_the_example_own_training_continues_from_the_saved_state) {
  const TemporaryFolder folder;
  const std::string first = output_of("own_training", folder.path());
  const std::string second = output_of("own_training", folder.path());
  EXPECT_LT(loss_of_step(first, 9), loss_of_step(first, 0));
  EXPECT_LT(loss_of_step(second, 0), loss_of_step(first, 0));
  EXPECT_NE(first, second);
}

}  // namespace
}  // namespace fsdp
