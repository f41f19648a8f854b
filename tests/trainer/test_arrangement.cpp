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

TEST(TreeSum, over_ranks_equals_that_over_parts_if_the_inner_numbers_are_powers_of_two) {
  in_a_process([] {
    for (const Arrangement arrangement :
         {Arrangement{1, 1, 8}, Arrangement{2, 1, 4}, Arrangement{4, 1, 2}, Arrangement{8, 1, 1},
          Arrangement{2, 1, 3}, Arrangement{6, 1, 1}, Arrangement{1, 1, 6}, Arrangement{4, 2, 1},
          Arrangement{2, 4, 1}, Arrangement{1, 8, 1}, Arrangement{2, 2, 2}}) {
      size_t most = 1;
      EXPECT_TRUE(at::equal(sum_one_after_another(arrangement, false, most),
                            sum_by_hand(parts(arrangement.parts()))))
          << arrangement.shards << " shards, " << arrangement.replicas << " replicas, "
          << arrangement.turns << " turns";
    }
  });
}

TEST(TreeSum, is_a_tree_of_trees_for_other_numbers) {
  in_a_process([] {
    const auto p = parts(12);
    const auto row = [&](size_t i) { return (p[i] + p[i + 1]) + p[i + 2]; };
    const at::Tensor rows = (row(0) + row(3)) + (row(6) + row(9));
    const auto pair = [&](size_t i) { return p[i] + p[i + 1]; };
    const at::Tensor pairs = ((pair(0) + pair(2)) + pair(4)) + ((pair(6) + pair(8)) + pair(10));
    const Arrangement turns_first{.shards = 2, .replicas = 2, .turns = 3, .turns_first = true};
    for (const bool always_aside : {false, true}) {
      const auto sum = [&](Arrangement arrangement) {
        size_t most = 1;
        return sum_one_after_another(arrangement, always_aside, most);
      };
      EXPECT_TRUE(at::equal(sum({3, 1, 2}), row(0) + row(3)));  // two turns of three ranks
      EXPECT_TRUE(at::equal(sum({3, 2, 2}), rows));             // of two replicas of three
      EXPECT_TRUE(at::equal(sum({2, 3, 2}), pairs));            // of three replicas of two
      EXPECT_TRUE(at::equal(sum(turns_first), rows));           // three turns of each of four
      EXPECT_TRUE(at::equal(sum({3, 2, 2, true}), pairs));      // two of each of two times three
    }
    EXPECT_FALSE(at::equal(rows, pairs));
    EXPECT_EQ(turns_first.part(/*rank=*/2, /*turn=*/1), 7);
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

}  // namespace
}  // namespace fsdp
