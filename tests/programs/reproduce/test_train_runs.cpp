#include <base/whole_file.h>
#include <gtest/gtest.h>
#include <reproduce/train_runs.h>

#include <common/expect_text.h>
#include <common/temporary_folder.h>

#include <fstream>

namespace fsdp {
namespace {

// Writes a shell script as a fake of the train program, and returns its path.
std::filesystem::path script(const std::string& body) {
  const auto path = std::filesystem::path(testing::TempDir()) / "fake_train";
  std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

TEST(TrainRuns, reproduce_runs_train_only_once_for_each_set_of_options) {
  const auto count = std::filesystem::path(testing::TempDir()) / "fake_train_count";
  std::filesystem::remove(count);
  TrainRuns runs(script("echo run >> '" + count.string() +
                        "'; for file; do :; done\n"
                        "echo '{\"final\":true,\"param_sha256\":\"'$2'\"}' > \"$file\""));
  EXPECT_EQ(runs({"--world", "3"}).hash(), "3");
  EXPECT_EQ(runs({"--world", "4"}).hash(), "4");
  EXPECT_EQ(runs({"--world", "3"}).hash(), "3");
  EXPECT_EQ(std::filesystem::file_size(count), 2 * std::string("run\n").size());
  EXPECT_EQ(runs.take_json().size(), 2U);
}

TEST(TrainRuns, reproduce_moves_receipts_out_of_the_folder_of_its_runs) {
  TrainRuns runs(
      script("echo hashes > $2; for file; do :; done; echo '{\"final\":true}' > \"$file\""));
  const TemporaryFolder folder;
  const std::filesystem::path into = folder.path() + "/receipts";
  runs.move_receipts("a", into);
  EXPECT_FALSE(std::filesystem::exists(into));
  folder.write("receipts/a-2.receipt", "of an earlier run");
  folder.write("receipts/a-b-1.receipt", "of another row");
  runs({"--receipt", "%/a-1.receipt"});
  runs.move_receipts("a", into);
  EXPECT_FALSE(std::filesystem::exists(into / "a-2.receipt"));
  EXPECT_TRUE(std::filesystem::exists(into / "a-b-1.receipt"));
  EXPECT_EQ(content_of(into / "a-1.receipt"), "hashes\n");
  EXPECT_FALSE(std::filesystem::exists(runs.folder() / "a-1.receipt"));
}

TEST(TrainRuns, the_error_of_a_failed_train_program_has_its_last_line_and_no_files_are_left) {
  std::filesystem::path folder;
  {
    TrainRuns runs(script("echo some output; echo 'fsdp train: rank 1 was lost' >&2; exit 1"));
    folder = runs.folder();
    for (int attempt = 0; attempt < 2; ++attempt)
      EXPECT_EQ(error_of<std::runtime_error>([&] {
                  runs({"--world", "2"});
                }),
                "fsdp train: rank 1 was lost");
    EXPECT_TRUE(std::filesystem::exists(folder));
  }
  EXPECT_FALSE(std::filesystem::exists(folder));
}

}  // namespace
}  // namespace fsdp
