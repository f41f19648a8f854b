#include <prediction/step_time.h>
#include <task6_prefetch/prefetching_toy.h>
#include <testing/counted_clock.h>

#include "small_model.h"

namespace fsdp {
namespace {

constexpr int64_t kMs = 1'000'000;  // a millisecond, in ns

// Joins neighbouring calls of one operation: "all_gather root, blocks0; " in place of "all_gather
// root; all_gather blocks0; ".
std::string joined(const std::vector<Call>& log) {
  std::string result;
  Operation last{};
  for (const Call& call : log) {
    const bool more = !result.empty() && call.operation == last;
    if (more) result.erase(result.size() - 2);
    result += (more ? ", " : std::string(to_string(call.operation)) + " ") + call.unit.str() + "; ";
    last = call.operation;
  }
  return result;
}

TEST(HandoutOfTask6,
     the_answer_to_prediction_1_of_task_6_lists_the_collectives_of_the_second_step) {
  const Values run = observed_on(2, [](TestRank& rank) {
    PrefetchingToy toy(rank, 2, 3);
    toy.step(rank);
    std::string calls;
    bool in_forward = true;
    const auto note = [&](size_t block) {
      calls += joined(rank.communicator()->take_log()) + "(blocks" + std::to_string(block);
      calls += in_forward && block == 0 ? " computes); " : "); ";
    };
    for (size_t i = 0; i < 3; ++i) {
      toy.model->blocks[i]->register_forward_pre_hook([&, i](Module&, const at::Tensor&) {
        note(i);
        return at::Tensor();
      });
      toy.model->blocks[i]->register_full_backward_pre_hook([&, i](Module&) { note(i); });
    }
    const at::Tensor loss = plain_loss(*toy.model, rank.rank());
    in_forward = false;
    calls.replace(calls.size() - 2, 2, ". Backward: ");
    loss.backward();
    rank.observe("calls", calls + joined(rank.communicator()->take_log()));
  });
  auto calls = run.at("calls").get<std::string>();
  // The handout shows the reduce-scatters of blocks0 and of the root as two entries.
  const std::string last = "blocks0, root; ";
  ASSERT_NE(calls.find(last), std::string::npos) << calls;
  calls.replace(calls.find(last), last.size(), "blocks0; reduce_scatter root.");
  expect_said(6, {}, "Forward: " + calls);
}

TEST(HandoutOfTask6,
     the_answer_to_prediction_2_of_task_6_has_the_most_unsharded_bytes_with_each_prefetch_limit) {
  const Values run = observed_on(2, [&](TestRank& rank) {
    for (const int limit : {1, 2, 3}) {
      PrefetchingToy toy(rank, limit, 4);
      toy.step(rank);
      live_bytes::reset(Phase::forward);
      live_bytes::reset(Phase::backward);
      toy.step(rank);
      rank.observe(std::to_string(limit),
                   std::max(live_bytes::peak(Phase::forward)[MemoryClass::gathered],
                            live_bytes::peak(Phase::backward)[MemoryClass::gathered]));
      EXPECT_EQ(toy.units[1]->layout().padded_numel * 4, 384);
    }
  });
  expect_said(6, run,
              "Each unit takes 384 bytes, so the root and k blocks take 384 (1 + k): {1}, {2} and "
              "{3} bytes.");
}

// Returns the milliseconds of forward, backward and the whole second step of the handout's
// pictures. Each of three blocks computes for 6 ms in forward and 12 ms in backward, and each
// collective takes `collective` ms. The clock only counts these times; nothing is measured.
Values step_of_the_pictures(int limit, int64_t collective) {
  const auto clock = std::make_shared<CountedClock>();
  const auto body = [&](TestRank& rank) {
    PrefetchingToy toy(rank, limit, 3);
    for (const auto& block : toy.model->blocks) {
      block->register_forward_pre_hook([&](Module&, const at::Tensor&) {
        clock->pass(6 * kMs);
        return at::Tensor();
      });
      block->register_full_backward_pre_hook([&](Module&) { clock->pass(12 * kMs); });
    }
    toy.step(rank);
    const int64_t start = clock->now();
    const at::Tensor loss = plain_loss(*toy.model, rank.rank());
    const int64_t middle = clock->now();
    loss.backward();
    rank.observe("forward", (middle - start) / kMs);
    rank.observe("backward", (clock->now() - middle) / kMs);
    rank.observe("step", (clock->now() - start) / kMs);
  };
  // A collective of two ranks takes one hop, so the time of a hop is that of a collective.
  const std::chrono::nanoseconds hop(collective * kMs);
  return observed_by(run_ranks(2, body, over_counted_link(clock, hop)));
}

TEST(HandoutOfTask6,
     the_answer_to_prediction_3_and_the_pictures_of_task_6_have_the_simulated_time_of_a_step) {
  const Values one = step_of_the_pictures(1, 4), two = step_of_the_pictures(2, 4);
  for (const std::string pass : {"forward", "backward"}) {
    expect_said(6, one, pass + ", no prefetch: {" + pass + "} ms");
    expect_said(6, two, pass + ", one unit ahead: {" + pass + "} ms");
  }
  const std::string sum = "{forward} + {backward} = {step} ms";
  expect_said(6, step_of_the_pictures(3, 4),
              "With limit 1 it takes " + filled(sum, one) + ". With limit 2 it takes " +
                  filled(sum, two) + ". With limit 3 it takes {step} ms again");
}

TEST(HandoutOfTask6,
     the_answer_to_prediction_4_of_task_6_has_the_simulated_time_of_a_step_over_a_slower_link) {
  Values ms;
  for (const int64_t collective : {12, 6}) {
    const std::string of = " of " + std::to_string(collective);
    const auto one = step_of_the_pictures(1, collective).at("step").get<int64_t>(),
               two = step_of_the_pictures(2, collective).at("step").get<int64_t>();
    ms["one" + of] = one;
    ms["two" + of] = two;
    ms["ratio" + of] = rounded(static_cast<double>(one) / static_cast<double>(two), 2);
  }
  expect_said(6, ms, "132 + 3 x 6 + 3 x 12 = {one of 12} ms.");
  expect_said(6, ms, "so the step takes {two of 12} ms.");
  expect_said(6, ms, "{one of 12} / {two of 12} = {ratio of 12} times as fast with prefetch.");
  expect_said(6, ms, "{one of 6} / {two of 6} = {ratio of 6} times as fast.");
}

TEST(HandoutOfTask6, the_handout_of_task_6_has_the_received_and_gathered_bytes_of_the_model_small) {
  Values costs = costs_of_small(2, true, 1);
  const Values two = costs_of_small(2, true, 2);
  EXPECT_EQ(two.at("all_gather"), costs["all_gather"]);
  costs["gathered by 2"] = two.at("gathered");
  costs["gathered by 3"] = costs_of_small(2, true, 3).at("gathered");
  expect_said(6, costs, "(2 x 4,708,608 - 512,256) = {all_gather} bytes");
  expect_said(6, costs, "4 x (R + kU): {gathered}, {gathered by 2} and {gathered by 3} bytes.");
}

TEST(HandoutOfTask6,
     the_handout_of_task_6_has_the_time_that_collectives_take_over_the_simulated_link) {
  const Link link = parse_link("2ms,200MB/s");
  const auto milliseconds = [&](int64_t elements) {
    return static_cast<double>(link.time(Operation::all_gather, elements * 4 / 2, 2)) / kMs;
  };
  const double root = milliseconds(512'256), block = milliseconds(1'049'088);
  const Values ms{{"root", rounded(root, 2)},
                  {"block", rounded(block, 2)},
                  {"all", rounded(2 * root + 12 * block, 1)}};
  expect_said(6, ms, "2 ms + 2,098,176 B / 200 MB/s = {block} ms, and the root's takes {root} ms.");
  expect_said(6, ms, "Two collectives of the root and twelve of the blocks take {all} ms");
}

}  // namespace
}  // namespace fsdp
