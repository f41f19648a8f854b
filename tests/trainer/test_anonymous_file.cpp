#include <gtest/gtest.h>
#include <memory/live_bytes.h>
#include <offload/anonymous_file.h>
#include <offload/copies_in_file.h>
#include <offload/moment_file.h>
#include <unistd.h>

#include <common/expect_text.h>
#include <common/in_a_process.h>
#include <common/limit_file_size.h>
#include <common/temporary_folder.h>

#include <filesystem>

namespace fsdp {
namespace {

constexpr int64_t kMiB = 1 << 20;

TEST(AnonymousFile, an_anonymous_file_reserves_its_bytes_and_has_no_name) {
  const TemporaryFolder folder;
  in_a_process([&] {
    const AnonymousFile file(folder.path(), 3 * kMiB, "a test");
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
    EXPECT_EQ(lseek(file.descriptor(), 0, SEEK_END), 3 * kMiB);
  });
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(AnonymousFile, the_error_of_an_anonymous_file_names_the_folder_and_the_bytes_that_do_not_fit) {
  const TemporaryFolder folder;
  in_a_process([&] {
    limit_file_size(kMiB);
    EXPECT_EQ(
        error_of<std::runtime_error>([&] { AnonymousFile(folder.path(), 2 * kMiB, "a test"); }),
        folder.path() + ": can't reserve 2097152 bytes for a test: File too large");
    const at::Tensor tensor = at::ones({kMiB / 2});
    EXPECT_EQ(
        error_of<std::runtime_error>([&] { copies_in_file(folder.path(), {tensor}, "a test"); }),
        folder.path() + ": can't reserve 2097152 bytes for a test: File too large");
    const std::string missing = folder.path() + "/missing";
    EXPECT_EQ(error_of<std::runtime_error>([&] { AnonymousFile(missing, 64, "a test"); }),
              missing + ": can't make a file for a test: No such file or directory");
  });
}

TEST(AnonymousFile, copies_in_an_anonymous_file_equal_tensors_of_any_shape_and_dtype) {
  const TemporaryFolder folder;
  in_a_process([&] {
    const std::vector<at::Tensor> tensors{at::randn({3, 5}),
                                          at::Tensor(),
                                          at::randn({7, 2}).t(),
                                          at::empty({0}),
                                          at::randn({9}).to(at::kBFloat16),
                                          at::randn({})};
    const auto live = live_bytes::now().total;
    const auto copies = copies_in_file(folder.path(), tensors, "a test");
    EXPECT_EQ(live_bytes::now().total, live);
    ASSERT_EQ(copies.size(), tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      SCOPED_TRACE("tensor " + std::to_string(i));
      ASSERT_EQ(copies[i].defined(), tensors[i].defined());
      if (!copies[i].defined()) continue;
      EXPECT_TRUE(copies[i].equal(tensors[i]));
      EXPECT_EQ(copies[i].scalar_type(), tensors[i].scalar_type());
      EXPECT_NE(copies[i].unsafeGetTensorImpl(), tensors[i].unsafeGetTensorImpl());
    }
  });
}

TEST(AnonymousFile, an_anonymous_file_lasts_as_long_as_any_tensor_in_it) {
  const TemporaryFolder folder;
  in_a_process([&] {
    const at::Tensor tensor = at::randn({100});
    at::Tensor last;
    {
      const auto copies = copies_in_file(folder.path(), {tensor, tensor + 1}, "a test");
      last = copies[1];
    }
    EXPECT_TRUE(last.equal(tensor + 1));
    last.add_(1);
    EXPECT_TRUE(last.equal(tensor + 1 + 1));
  });
}

}  // namespace
}  // namespace fsdp
