#include <config/arrangement.h>
#include <gtest/gtest.h>

#include <common/in_a_process.h>
#include <common/parts.h>

namespace fsdp {
namespace {

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
