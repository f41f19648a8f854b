#include <base/child_program.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>

#include <common/temporary_folder.h>

namespace fsdp {
namespace {

// What the example prints, which is built beside this program.
std::string output_of(const std::string& example, const std::string& folder) {
  const std::string program =
      std::filesystem::read_symlink("/proc/self/exe").replace_filename(example);
  ChildProgram child([&](int pipe) {
    dup2(pipe, STDOUT_FILENO);
    setenv("OMP_NUM_THREADS", "1", 1);  // each rank has a core at most
    return std::vector{program, folder};
  });
  std::string output;
  char bytes[4096];
  const auto deadline = ChildProgram::Clock::now() + std::chrono::minutes(2);
  while (const auto count = child.read(bytes, sizeof(bytes), deadline)) {
    if (*count == 0) break;
    output.append(bytes, *count);
  }
  const auto end = child.end(std::chrono::minutes(1));
  EXPECT_EQ(end.code, 0) << end.text();
  return output;
}

double loss_of_step(const std::string& output, int step) {
  const std::string label = "step " + std::to_string(step) + ": ";
  const size_t place = output.find(label);
  EXPECT_NE(place, std::string::npos) << output;
  return place == std::string::npos ? -1 : std::stod(output.substr(place + label.size()));
}

TEST(OwnTraining, goes_on_from_what_it_has_saved) {
  const TemporaryFolder folder;
  const std::string first = output_of("own_training", folder.path());
  const std::string second = output_of("own_training", folder.path());
  EXPECT_LT(loss_of_step(first, 9), loss_of_step(first, 0));
  EXPECT_LT(loss_of_step(second, 0), loss_of_step(first, 0));
  EXPECT_NE(first, second);
}

TEST(OwnPlan, is_what_the_training_then_takes) {
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
