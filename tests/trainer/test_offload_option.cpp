#include <gtest/gtest.h>

#include <common/temporary_folder.h>

#include <filesystem>

#include "parsed.h"

namespace fsdp {
namespace {

TEST(OffloadOption, an_offload_dir_that_is_a_file_is_refused) {
  const TemporaryFolder folder;
  const std::string file = folder.write("file", "x");
  EXPECT_EQ(refusal({"--offload", "optimizer", "--offload-dir", file}),
            "--offload-dir " + file + ": Not a directory");
}

TEST(OffloadOption, offload_dir_and_offload_resident_set_the_folder_and_the_bytes_in_memory) {
  const std::string folder = "/";
  const TrainConfig config = parse(
      {"--offload", "optimizer", "--offload-dir", folder, "--offload-resident", "3000000000"});
  EXPECT_EQ(config.memory.offload_dir, folder);
  EXPECT_EQ(config.memory.offload_resident, 3'000'000'000);
  EXPECT_EQ(parse({"--offload", "none"}).memory.offload_dir, "");
}

TEST(OffloadOption, contradicting_offload_options_are_refused) {
  EXPECT_EQ(refusal({"--offload", "optimizer"}), "--offload optimizer: needs --offload-dir");
  EXPECT_EQ(refusal({"--offload-dir", "/"}), "--offload-dir: needs --offload optimizer");
  EXPECT_EQ(refusal({"--offload-resident", "1", "--offload", "none"}),
            "--offload-resident: needs --offload optimizer");
  EXPECT_EQ(refusal({"--offload", "optimizer", "--offload-dir", "/missing"}),
            "--offload-dir /missing: no such folder");
  EXPECT_EQ(refusal({"--offload", "optimizer", "--offload-dir", "/", "--optimizer", "sgd"}),
            "--offload optimizer: sgd has no state; give --optimizer adamw");
}

TEST(OffloadOption, an_offload_dir_on_a_file_system_in_memory_is_refused) {
  if (!std::filesystem::is_directory("/dev/shm")) GTEST_SKIP() << "this machine has no /dev/shm";
  EXPECT_EQ(refusal({"--offload", "optimizer", "--offload-dir", "/dev/shm"}),
            "--offload-dir /dev/shm: is in memory; give a folder on a disk");
}

}  // namespace
}  // namespace fsdp
