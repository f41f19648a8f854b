#include <gtest/gtest.h>

#include <common/temporary_folder.h>

#include <sstream>

#include "example_output.h"

namespace fsdp {
namespace {

TEST(OwnPlan, the_example_own_plan_prints_planned_bytes_that_equal_the_measured_ones) {
  const TemporaryFolder folder;
  std::istringstream lines(output_of("own_plan", folder.path()));
  int compared = 0;
  for (std::string cls, word, planned, measured; lines >> cls >> word >> planned; ++compared) {
    lines >> word >> measured >> word;
    EXPECT_EQ(planned, measured + ",") << cls;
  }
  EXPECT_EQ(compared, 5);
}

}  // namespace
}  // namespace fsdp
