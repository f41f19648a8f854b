#include <prediction/step_time.h>
#include <task6_prefetch/prefetching_toy.h>
#include <testing/counted_clock.h>

#include "handout.h"
#include "small_model.h"

namespace fsdp {
namespace {

constexpr int64_t kMs = 1'000'000;  // [ns]

// "all_gather root, blocks0; " of "all_gather root; all_gather blocks0; ".
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

TEST(HandoutOfTask6, prediction_1_lists_the_calls_of_the_second_step) {
  const RankRun run = run_ranks(2, [](TestRank& rank) {
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
  std::string calls = run.at(0, "calls").get<std::string>();
  // The last block's reduce-scatter and the root's are two entries in the handout.
  const std::string last = "blocks0, root; ";
  ASSERT_NE(calls.find(last), std::string::npos) << calls;
  calls.replace(calls.find(last), last.size(), "blocks0; reduce_scatter root.");
  expect_said(6, "Forward: " + calls);
}

TEST(HandoutOfTask6, prediction_2_counts_the_unsharded_bytes_of_each_limit) {
  std::vector<std::string> peaks;
  for (const int limit : {1, 2, 3}) {
    const RankRun run = run_ranks(2, [&](TestRank& rank) {
      PrefetchingToy toy(rank, limit, 4);
      toy.step(rank);
      live_bytes::enter(Phase::forward);
      toy.step(rank);
      int64_t peak = 0;
      for (const Phase phase : {Phase::forward, Phase::backward})
        peak = std::max(peak, live_bytes::peak(phase)[MemoryClass::gathered]);
      rank.observe("peak", with_commas(peak));
      rank.observe("unit", with_commas(toy.units[1]->layout().padded_numel * 4));
    });
    EXPECT_EQ(run.at(0, "unit"), "384");
    peaks.push_back(run.at(0, "peak").get<std::string>());
  }
  expect_said(6, "Each takes 384 bytes, so 384 (1 + k): " + peaks[0] + ", " + peaks[1] + " and " +
                     peaks[2] + " bytes.");
}

struct StepMs {
  int64_t forward, backward;
};

// The second step of the pictures: three blocks compute for 6 ms and 12 ms, and each collective
// takes `collective` ms. No time is measured.
StepMs step_of_the_pictures(int limit, int64_t collective) {
  const auto clock = std::make_shared<CountedClock>();
  RunOptions options;
  options.link = Link{std::chrono::nanoseconds(collective * kMs), 1e18};  // one hop on two ranks
  options.clock = clock;
  const RankRun run = run_ranks(
      2,
      [&](TestRank& rank) {
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
      },
      options);
  return {run.at(0, "forward").get<int64_t>(), run.at(0, "backward").get<int64_t>()};
}

std::string sum(const StepMs& step) {
  return with_commas(step.forward) + " + " + with_commas(step.backward) + " = " +
         with_commas(step.forward + step.backward) + " ms";
}

TEST(HandoutOfTask6, prediction_3_and_the_pictures_count_the_milliseconds_of_a_step) {
  const StepMs one = step_of_the_pictures(1, 4), two = step_of_the_pictures(2, 4),
               three = step_of_the_pictures(3, 4);
  expect_said(6, "forward, no prefetch: " + with_commas(one.forward) + " ms");
  expect_said(6, "forward, one unit ahead: " + with_commas(two.forward) + " ms");
  expect_said(6, "backward, no prefetch: " + with_commas(one.backward) + " ms");
  expect_said(6, "backward, one unit ahead: " + with_commas(two.backward) + " ms");
  expect_said(6, sum(one) + "; " + sum(two) + "; " + with_commas(three.forward + three.backward) +
                     " ms again");
}

TEST(HandoutOfTask6, prediction_4_counts_the_milliseconds_over_a_slower_link) {
  const auto total = [](int limit, int64_t collective) {
    const StepMs step = step_of_the_pictures(limit, collective);
    return step.forward + step.backward;
  };
  const auto ratio = [](int64_t slow, int64_t fast) {
    return rounded(static_cast<double>(slow) / static_cast<double>(fast), 2);
  };
  const int64_t one = total(1, 12), two = total(2, 12);
  expect_said(6, "132 + 3 x 6 + 3 x 12 = " + with_commas(one) + " ms.");
  expect_said(6, with_commas(two) + " ms, a ratio of " + ratio(one, two) + ".");
  const int64_t one_of_6 = total(1, 6), two_of_6 = total(2, 6);
  expect_said(6, with_commas(one_of_6) + " / " + with_commas(two_of_6) + " = " +
                     ratio(one_of_6, two_of_6) + ".");
}

TEST(HandoutOfTask6, measure_predicts_the_bytes_of_the_model_small) {
  std::vector<std::string> gathered, received;
  for (const int limit : {1, 2, 3}) {
    const RankRun run = run_ranks(2, [&](TestRank& rank) {
      const SmallModel small(rank, true, limit);
      small.step();
      live_bytes::enter(Phase::forward);
      rank.observe("received", with_commas(small.step().at("all_gather")));
      rank.observe("gathered", with_commas(live_bytes::peak()[MemoryClass::gathered]));
    });
    received.push_back(run.at(0, "received").get<std::string>());
    gathered.push_back(run.at(0, "gathered").get<std::string>());
  }
  EXPECT_EQ(received[0], received[1]);
  expect_said(6, "(2 x 4,708,608 - 512,256) = " + received[0] + " bytes");
  expect_said(6, "R + kU: " + gathered[0] + ", " + gathered[1] + " and " + gathered[2] + " bytes.");
}

TEST(HandoutOfTask6, measure_predicts_the_milliseconds_on_the_link) {
  const Link link = parse_link("2ms,200MB/s");
  const auto milliseconds = [&](int64_t elements) {
    return static_cast<double>(link.time(Operation::all_gather, elements * 4 / 2, 2)) / kMs;
  };
  const double root = milliseconds(512'256), block = milliseconds(1'049'088);
  expect_said(6, "2 ms + 2,098,176 B / 200 MB/s = " + rounded(block, 2) +
                     " ms, and the root's takes " + rounded(root, 2) + " ms.");
  expect_said(6, "Two collectives of the root and twelve of the blocks take " +
                     rounded(2 * root + 12 * block, 1) + " ms");
}

}  // namespace
}  // namespace fsdp
