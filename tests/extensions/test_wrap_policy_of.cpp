#include <strategies/fsdp/wrap_option.h>
#include <unit_plan.h>
#include <wrap_by_size.h>

#include <task7_integration/planned_models.h>

namespace fsdp {
namespace {

// A class with the shortest possible name.
struct A : Scale {};

TEST(WrapPolicyOf, wrap_policy_of_returns_the_policy_that_the_text_names) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    const auto plan = [&](const std::string& name, const WrapPolicy& policy) {
      Row model({std::make_shared<OuterBlock>(), std::make_shared<A>()});
      rank.observe(name, text(plan_units(model, policy)));
    };
    const std::vector<std::pair<std::string, WrapPolicy>> policies{
        {"auto", wrap_auto()},         {"block", wrap_blocks()},
        {"none", wrap_none()},         {"type:OuterBlock", wrap_by_type("OuterBlock")},
        {"type:A", wrap_by_type("A")}, {"size:1", wrap_by_size(1)},
        {"size:93", wrap_by_size(93)}, {"size:1000000000000", wrap_none()}};
    for (const auto& [good, policy] : policies) {
      plan(good, wrap_policy_of(good));
      plan("the policy of " + good, policy);
    }
  });
  for (const std::string good : {"auto", "block", "none", "type:OuterBlock", "type:A", "size:1",
                                 "size:93", "size:1000000000000"})
    expect_on_all_ranks(run, good, run.at(0, "the policy of " + good));
}

TEST(WrapPolicyOf, wrap_policy_of_an_invalid_text_throws) {
  for (const char* bad : {"", "blocks", "type:", "size:", "size:0", "size:1k", "size:-5",
                          "size:99999999999999999999"})
    EXPECT_THROW(wrap_policy_of(bad), std::invalid_argument) << bad;
}

}  // namespace
}  // namespace fsdp
