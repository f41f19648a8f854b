#include <data/dataset.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include <common/expect_text.h>
#include <common/temporary_folder.h>

namespace fsdp {
namespace {

TEST(RepositoryText,
     the_default_training_text_is_the_repositorys_sources_without_build_and_student_files) {
  const TemporaryFolder folder;
  std::vector<std::string> expected;
  for (const char* name : {"README.md", "docs/a.md", "common/nn/a.cpp", "common/nn/a.h"})
    expected.push_back(folder.write(name, "x"));
  for (const char* name :
       {"build/default/a.cpp", ".venv/b.h", "common/c.py", "tasks/t/a.cpp", "writeup/report.md"})
    folder.write(name, "x");
  EXPECT_EQ(repository_text(folder.path()), expected);
  const std::string none = folder.path() + "/build";
  EXPECT_CONTAINS(error_of<std::invalid_argument>([&] { repository_text(none); }), none);
}

}  // namespace
}  // namespace fsdp
