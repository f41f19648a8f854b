#include <base/torch.h>
#include <comm/tree_sum.h>
#include <gtest/gtest.h>

#include "in_a_process.h"

namespace fsdp {
namespace {

// Sums of these differ in their last bits with the order.
at::Tensor part(int number, int64_t numel = 100) {
  constexpr double scales[] = {1.1, 3.0, -0.7, 0.3, -2.9};
  return at::arange(numel, at::kFloat)
      .mul_(0.001)
      .add_(1)
      .mul_(scales[number % 5])
      .add_(0.1 * number);
}

std::vector<at::Tensor> parts(int count, int64_t numel = 100) {
  std::vector<at::Tensor> all;
  for (int i = 0; i < count; ++i)
    all.push_back(part(i, numel));
  return all;
}

// ((0+1)+(2+3))+4, written out.
at::Tensor sum_by_hand(const std::vector<at::Tensor>& p) {
  switch (p.size()) {
    case 1:
      return p[0];
    case 2:
      return p[0] + p[1];
    case 3:
      return (p[0] + p[1]) + p[2];
    case 4:
      return (p[0] + p[1]) + (p[2] + p[3]);
    case 5:
      return ((p[0] + p[1]) + (p[2] + p[3])) + p[4];
    case 6:
      return ((p[0] + p[1]) + (p[2] + p[3])) + (p[4] + p[5]);
    case 7:
      return ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + p[6]);
    default:
      return ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7]));
  }
}

TEST(TreeSum, of_parts_at_hand_is_a_tree_over_them) {
  in_a_process([] {
    for (int count = 1; count <= 8; ++count) {
      for (const int64_t numel : {0, 1, 1000, 40'003})  // the last: more than one chunk
        EXPECT_TRUE(at::equal(sum_as_tree(parts(count, numel)), sum_by_hand(parts(count, numel))))
            << count << " parts of " << numel;
    }
  });
}

TEST(TreeSum, may_be_written_over_any_of_the_parts) {
  in_a_process([] {
    for (int count = 1; count <= 8; ++count) {
      for (int over = 0; over < count; ++over) {
        const auto all = parts(count, 20'000);
        const at::Tensor expected = sum_by_hand(all);
        std::vector<const void*> data;
        for (const at::Tensor& tensor : all)
          data.push_back(tensor.const_data_ptr());
        const at::Tensor& output = all[static_cast<size_t>(over)];
        sum_as_tree(output.mutable_data_ptr(), at::kFloat, data, output.numel(), at::kFloat);
        EXPECT_TRUE(at::equal(output, expected)) << count << " parts, over part " << over;
      }
    }
  });
}

// In fp32, and rounded once to the dtype of the output. The last size is more than one chunk.
TEST(TreeSum, of_narrow_parts_is_taken_in_fp32) {
  in_a_process([] {
    for (const auto dtype : {at::kBFloat16, at::kHalf}) {
      for (const int64_t numel : {0, 1, 1000, 40'003}) {
        for (int count = 1; count <= 8; ++count) {
          std::vector<at::Tensor> narrow, wide;
          std::vector<const void*> data;
          for (const at::Tensor& part : parts(count, numel)) {
            narrow.push_back(part.to(dtype));
            wide.push_back(narrow.back().to(at::kFloat));
            data.push_back(narrow.back().const_data_ptr());
          }
          for (const auto output_dtype : {at::kFloat, dtype}) {
            const at::Tensor sum = at::empty({numel}, output_dtype);
            sum_as_tree(sum.mutable_data_ptr(), output_dtype, data, numel, dtype);
            EXPECT_TRUE(at::equal(sum, sum_by_hand(wide).to(output_dtype)))
                << count << " parts of " << numel << " x " << dtype << " into " << output_dtype;
          }
        }
      }
    }
  });
}

// The parts come in the order of their numbers. Each begins a tensor of its own, or is added to the
// running sum where TreeSum says so.
at::Tensor sum_one_after_another(Arrangement arrangement, bool always_aside, size_t& most) {
  TreeSum sum(arrangement);
  at::Tensor running;
  size_t aside = 0;
  for (int i = 0; i < arrangement.parts(); ++i) {
    if (i > 0 && (always_aside || sum.puts_aside())) {
      sum.put_aside({running});
      running = part(i);
      most = std::max(most, ++aside + 1);
    } else {
      running = i == 0 ? part(i) : running + part(i);
    }
    sum.added({running});
    aside = static_cast<size_t>(arrangement.partial_sums(i + 1)) - 1;
  }
  return running;
}

TEST(TreeSum, of_parts_that_come_one_after_another_is_the_same) {
  in_a_process([] {
    for (int count = 1; count <= 8; ++count) {
      for (const bool always_aside : {false, true}) {
        size_t most = 1;
        const at::Tensor sum = sum_one_after_another({.turns = count}, always_aside, most);
        EXPECT_TRUE(at::equal(sum, sum_by_hand(parts(count)))) << count << " parts";
        if (!always_aside) {
          EXPECT_EQ(most, count <= 3 ? 1U : count <= 7 ? 2U : 3U) << count << " parts";
        }
      }
    }
  });
}

TEST(TreeSum, is_that_of_all_parts_if_the_number_of_ranks_is_a_power_of_two) {
  in_a_process([] {
    for (const auto& [ranks, turns] :
         std::vector<std::pair<int, int>>{{1, 8}, {2, 4}, {4, 2}, {8, 1}, {2, 3}, {6, 1}, {1, 6}}) {
      size_t most = 1;
      const Arrangement arrangement{.shards = ranks, .turns = turns};
      EXPECT_TRUE(at::equal(sum_one_after_another(arrangement, false, most),
                            sum_by_hand(parts(arrangement.parts()))))
          << ranks << " ranks, " << turns << " turns";
    }
  });
}

TEST(TreeSum, is_that_of_the_replicas_for_other_numbers_of_ranks) {
  in_a_process([] {
    const auto p = parts(12);
    const auto row = [&](size_t i) { return (p[i] + p[i + 1]) + p[i + 2]; };
    const at::Tensor two_of_three = (row(0) + row(3)) + (row(6) + row(9));
    const auto pair = [&](size_t i) { return p[i] + p[i + 1]; };
    const at::Tensor three_of_two =
        ((pair(0) + pair(2)) + pair(4)) + ((pair(6) + pair(8)) + pair(10));
    for (const bool always_aside : {false, true}) {
      size_t most = 1;
      EXPECT_TRUE(at::equal(sum_one_after_another({3, 2, 2}, always_aside, most), two_of_three));
      EXPECT_TRUE(at::equal(sum_one_after_another({2, 3, 2}, always_aside, most), three_of_two));
    }
    EXPECT_FALSE(at::equal(two_of_three, three_of_two));
  });
}

TEST(TreeSum, is_that_of_all_parts_if_shards_and_replicas_are_powers_of_two) {
  in_a_process([] {
    const at::Tensor expected = sum_by_hand(parts(8));
    for (const Arrangement arrangement :
         {Arrangement{4, 2, 1}, Arrangement{2, 4, 1}, Arrangement{1, 8, 1}, Arrangement{2, 2, 2}}) {
      size_t most = 1;
      EXPECT_TRUE(at::equal(sum_one_after_another(arrangement, false, most), expected))
          << arrangement.shards << " shards, " << arrangement.replicas << " replicas";
    }
  });
}

TEST(TreeSum, is_that_of_each_ranks_parts_first_where_turns_come_first) {
  in_a_process([] {
    const auto p = parts(12);
    const auto of_rank = [&](size_t i) { return (p[i] + p[i + 1]) + p[i + 2]; };
    const at::Tensor expected = (of_rank(0) + of_rank(3)) + (of_rank(6) + of_rank(9));
    for (const bool always_aside : {false, true}) {
      size_t most = 1;
      const Arrangement arrangement{.shards = 2, .replicas = 2, .turns = 3, .turns_first = true};
      EXPECT_TRUE(at::equal(sum_one_after_another(arrangement, always_aside, most), expected));
      EXPECT_EQ(arrangement.part(/*rank=*/2, /*turn=*/1), 7);
    }
  });
}

TEST(TreeSum, counts_an_undefined_tensor_as_zero) {
  in_a_process([] {
    TreeSum sum({.turns = 3});
    sum.added({part(0), at::Tensor(), at::Tensor()});
    sum.put_aside({part(0), at::Tensor(), at::Tensor()});
    const auto two = sum.added({at::Tensor(), part(1), at::Tensor()});
    EXPECT_TRUE(at::equal(two[0], part(0)));
    EXPECT_TRUE(at::equal(two[1], part(1)));
    EXPECT_FALSE(two[2].defined());
  });
}

TEST(TreeSum, is_that_of_the_turns_for_other_numbers_of_ranks) {
  in_a_process([] {
    const auto p = parts(6);
    const at::Tensor turns = ((p[0] + p[1]) + p[2]) + ((p[3] + p[4]) + p[5]);
    for (const bool always_aside : {false, true}) {
      size_t most = 1;
      EXPECT_TRUE(
          at::equal(sum_one_after_another({.shards = 3, .turns = 2}, always_aside, most), turns));
    }
    EXPECT_FALSE(at::equal(sum_by_hand(p), turns));
  });
}

}  // namespace
}  // namespace fsdp
