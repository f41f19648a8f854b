#include <flat_parameter.h>
#include <launch/collect.h>
#include <testing/multi_rank.h>

#include <common/expect_text.h>

namespace fsdp {
namespace {

// Tests of calls that the contracts of the tasks do not allow, and for which the reference solution
// throws.
MULTI_RANK_SUITE(Misuse);

MULTI_RANK_TEST(Misuse,
                a_second_gradient_reduction_of_a_unit_throws_while_the_first_one_is_pending) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const at::Tensor parameter = at::zeros({5}).requires_grad_();
    const auto unit = make_flat_parameter("block", {{"weight", parameter}}, rank.communicator());
    const auto collect = [&](double value) {
      parameter.mutable_grad() = at::full({5}, value);
      unit->mark_gradient_ready(0);
    };
    collect(1);
    unit->reduce_gradient();
    collect(2);
    rank.observe("error", error_of<std::logic_error>([&] { unit->reduce_gradient(); }));
    unit->wait_for_reduction();
    rank.observe("first", unit->sharded_gradient().max().item<double>());
    unit->reduce_gradient();
    unit->wait_for_reduction();
    rank.observe("both", unit->sharded_gradient().max().item<double>());
  });
  expect_on_all_ranks(run, "error", "unit block: reduce_gradient() before wait_for_reduction()");
  expect_on_rank(run, 0, "first", 1.0);
  expect_on_rank(run, 0, "both", 3.0);
}

}  // namespace
}  // namespace fsdp
