#include <gtest/gtest.h>

#include <common/temporary_folder.h>

#include <filesystem>

#include "parsed.h"

namespace fsdp {
namespace {

std::string refused(const Arguments& arguments) {
  return refusal(arguments, parsed);
}

TEST(OutputOptions, a_file_that_can_not_be_written_is_refused_with_the_reason) {
  const TemporaryFolder folder;
  const std::string missing = folder.path() + "/no/such/file.txt";
  const std::string taken = folder.path() + "/folder.txt";
  std::filesystem::create_directory(taken);
  for (const std::string option : {"--log", "--json", "--trace"}) {
    EXPECT_EQ(refused({option, missing}), option + ' ' + missing + ": No such file or directory");
    EXPECT_EQ(refused({option, taken}), option + ' ' + taken + ": Is a directory");
    const std::string path = folder.path() + "/file.txt";
    EXPECT_EQ(refused({option, path}), "accepted");
    EXPECT_FALSE(std::filesystem::exists(path));
  }
}

TEST(OutputOptions, a_file_may_be_one_of_the_system) {
  EXPECT_EQ(parsed({"--log", "/dev/null", "--json", "/dev/null"}).json, "/dev/null");
  EXPECT_EQ(refused({"--json", "-"}), "--json -: names no file; give /dev/stdout");
  EXPECT_EQ(refused({"--log", "-"}), "--log -: names no file; give /dev/stdout");
}

TEST(OutputOptions, two_of_them_are_two_files) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file.txt";
  const std::string link = folder.path() + "/link.txt";
  std::filesystem::create_symlink("file.txt", link);
  const auto name_one = [&](const std::string& a, const std::string& b) {
    return a + " and " + b + " name one file, " + path + ": one would replace the other";
  };
  EXPECT_EQ(refused({"--json", path, "--trace", path}), name_one("--json", "--trace"));
  EXPECT_EQ(refused({"--json", path, "--trace", link}), name_one("--json", "--trace"));
  EXPECT_EQ(refused({"--json", path, "--log", path}), name_one("--json", "--log"));
  EXPECT_EQ(refused({"--log", path, "--checkpoint-dir", path}),
            name_one("--log", "--checkpoint-dir"));
  EXPECT_EQ(refused({"--json", path, "--trace", folder.path() + "/other.txt"}), "accepted");
  folder.write("file.txt", "a text that is worth more than a log");
  EXPECT_EQ(refused({"--json", path, "--text", path}), name_one("--json", "--text"));
}

}  // namespace
}  // namespace fsdp
