#include <gtest/gtest.h>
#include <no_sync.h>
#include <optional>

namespace fsdp {
namespace {

TEST(NoSyncScope, a_no_sync_scope_that_was_moved_ends_exactly_once) {
  std::vector<bool> set;
  const auto make = [&] { return NoSync([&](bool sync) { set.push_back(sync); }); };
  {
    std::optional<NoSync> held;
    held = make();
    NoSync other = std::move(*held);
    EXPECT_EQ(set, std::vector<bool>{false});
    held.reset();  // ends no scope, because the scope was moved to `other`
    EXPECT_EQ(set, std::vector<bool>{false});
  }
  EXPECT_EQ(set, (std::vector<bool>{false, true}));
  set.clear();
  {
    NoSync one = make();
    one = make();  // the second scope begins before the first one ends
    EXPECT_FALSE(set.back());
    NoSync& same = one;
    one = std::move(same);
    EXPECT_FALSE(set.back());
  }
  EXPECT_TRUE(set.back());
}

}  // namespace
}  // namespace fsdp
