#include <gtest/gtest.h>
#include <memory/live_bytes.h>
#include <optim/state_file.h>

#include <filesystem>

#include "expect_text.h"
#include "in_a_process.h"
#include "limit_file_size.h"
#include "temporary_folder.h"

namespace fsdp {
namespace {

constexpr int64_t kMiB = 1 << 20;

TEST(StateFile, keeps_what_is_written_to_its_tensors) {
  const TemporaryFolder folder;
  in_a_process([&] {
    StateFile file(folder.path(), 3 * kMiB, kMiB / 2);
    std::vector<at::Tensor> tensors;
    for (int i = 0; i < 3; ++i)
      tensors.push_back(file.zeros(kMiB / 4));
    for (int turn = 0; turn < 4; ++turn) {
      for (size_t i = 0; i < tensors.size(); ++i) {
        const auto expected = static_cast<float>(turn * (i + 1));
        EXPECT_TRUE(tensors[i].eq(expected).all().item<bool>())
            << "tensor " << i << " in turn " << turn;
        tensors[i] += static_cast<float>(i + 1);
        file.write_behind(tensors[i]);
      }
    }
  });
}

TEST(StateFile, leaves_no_name_in_its_folder) {
  const TemporaryFolder folder;
  in_a_process([&] {
    StateFile file(folder.path(), kMiB, 0);
    file.zeros(kMiB / 4).fill_(1);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  });
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(StateFile, counts_the_pages_that_stay_in_memory_and_no_other) {
  const TemporaryFolder folder;
  in_a_process([&] {
    const auto live = [] { return live_bytes::now()[MemoryClass::optimizer_state]; };
    {
      const StateFile file(folder.path(), kMiB, 5000);
      EXPECT_EQ(live(), 8192);
    }
    EXPECT_EQ(live(), 0);
    const StateFile all_pinned(folder.path(), 5000, kMiB);
    EXPECT_EQ(live(), 5000);
  });
}

TEST(StateFile, refuses_more_than_was_reserved) {
  const TemporaryFolder folder;
  in_a_process([&] {
    StateFile file(folder.path(), 64, 0);
    file.zeros(16);
    EXPECT_EQ(error_of<std::logic_error>([&] { file.zeros(1); }),
              folder.path() + ": 64 bytes are reserved for optimizer state, and more is wanted");
  });
}

TEST(StateFile, says_at_once_that_its_bytes_do_not_fit) {
  const TemporaryFolder folder;
  in_a_process([&] {
    limit_file_size(kMiB);
    const std::string error =
        error_of<std::runtime_error>([&] { StateFile(folder.path(), 2 * kMiB, 0); });
    EXPECT_EQ(error,
              folder.path() +
                  ": can't reserve 2097152 bytes for the optimizer state of a rank: File too "
                  "large");
    const std::string missing = folder.path() + "/missing";
    EXPECT_EQ(
        error_of<std::runtime_error>([&] { StateFile(missing, 64, 0); }),
        missing +
            ": can't make a file for the optimizer state of a rank: No such file or directory");
  });
}

}  // namespace
}  // namespace fsdp
