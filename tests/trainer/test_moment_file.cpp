#include <gtest/gtest.h>
#include <memory/live_bytes.h>
#include <offload/moment_file.h>

#include <common/expect_text.h>
#include <common/in_a_process.h>
#include <common/temporary_folder.h>

// Tests moments of the optimizer that are in a file instead of in memory.
namespace fsdp {
namespace {

// Makes five updates of `n` elements with AdamW. The moments are in `file`, or in memory if `file`
// is null. Returns the parameter, and the moments and step counts of its pieces.
std::vector<at::Tensor> after_updates(int64_t n, std::shared_ptr<MomentFile> file) {
  OptimizerOptions options;
  options.moments = std::move(file);
  const auto parameter = torch::sin(torch::arange(n)), gradient = torch::empty({n});
  std::vector<Piece> pieces;
  int64_t begin = 0;
  for (const int64_t size : {int64_t{16}, n - 32, int64_t{16}}) {
    pieces.push_back(
        {parameter.narrow(0, begin, size), gradient.narrow(0, begin, size), {}, {}, {}});
    begin += size;
  }
  for (int step = 0; step < 5; ++step) {
    gradient.copy_(torch::cos(torch::arange(n) * (step + 1.0)));
    update(options, pieces);
  }
  std::vector<at::Tensor> result{parameter};
  for (const Piece& piece : pieces) {
    result.push_back(piece.exp_avg.clone());
    result.push_back(piece.exp_avg_sq.clone());
    result.push_back(piece.step);
  }
  return result;
}

TEST(MomentFile, adamw_with_moments_in_a_file_gives_the_bits_of_moments_in_memory) {
  const TemporaryFolder folder;
  in_a_process([&] {
    // The number of elements of the parameter. It is larger than the number of elements that an
    // update processes at a time (2^22).
    const int64_t n = (int64_t{1} << 22) + 4800;
    const int64_t bytes = 2 * 4 * n;
    const auto expected = after_updates(n, nullptr);
    for (const int64_t pinned : {int64_t{0}, int64_t{1} << 20, bytes}) {
      const auto file = std::make_shared<MomentFile>(folder.path(), bytes, pinned);
      const auto result = after_updates(n, file);
      ASSERT_EQ(result.size(), expected.size());
      for (size_t i = 0; i < result.size(); ++i)
        EXPECT_TRUE(at::equal(result[i], expected[i])) << i << ", " << pinned << " pinned";
    }
  });
}

TEST(MomentFile, a_moment_files_live_bytes_are_only_its_pages_that_stay_in_memory) {
  const TemporaryFolder folder;
  in_a_process([&] {
    const auto live = [] { return live_bytes::now()[MemoryClass::optimizer_state]; };
    {
      const MomentFile file(folder.path(), 1 << 20, 5000);
      EXPECT_EQ(live(), 8192);  // the 5,000 bytes to keep take two whole pages
    }
    EXPECT_EQ(live(), 0);
    const MomentFile all_pinned(folder.path(), 5000, 1 << 20);
    EXPECT_EQ(live(), 5000);
  });
}

TEST(MomentFile, a_moment_file_refuses_more_bytes_than_were_reserved) {
  const TemporaryFolder folder;
  in_a_process([&] {
    MomentFile file(folder.path(), 64, 0);
    file.zeros(16);
    EXPECT_EQ(error_of<std::logic_error>([&] { file.zeros(1); }),
              folder.path() + ": 64 bytes are reserved for optimizer state, and more is wanted");
  });
}

}  // namespace
}  // namespace fsdp
