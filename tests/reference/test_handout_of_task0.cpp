#include <nn/models.h>
#include <optim/update_rule.h>
#include <task0_ddp/replicated_toy.h>
#include <testing/counted_clock.h>

#include "handout.h"

namespace fsdp {
namespace {

std::vector<std::vector<int64_t>> shapes_of_toy() {
  std::vector<std::vector<int64_t>> shapes;
  for (const auto& parameter : distinct_parameters(*kReplicatedToy()))
    shapes.push_back(parameter.tensor.sizes().vec());
  return shapes;
}

// Reduces in buckets the gradients that a backward pass has left in .grad of the parameters of a
// ToyModel.
void reduce_in_buckets(const ToyModel& model, const std::shared_ptr<Communicator>& comm) {
  const auto reducer = make_bucket_reducer(shapes_of_toy(), kBucketOfABlock, comm);
  const auto parameters = distinct_parameters(model);
  reducer->begin();
  for (size_t i = 0; i < parameters.size(); ++i)
    reducer->place(i).copy_(parameters[i].tensor.grad());
  reducer->finish();
}

TEST(HandoutOfTask0,
     the_answer_to_prediction_1_of_task_0_lists_the_gradient_buckets_of_the_toy_model) {
  const Values run = observed_on(1, [](TestRank& rank) {
    std::vector<int64_t> numels;
    for (const auto& parameter : distinct_parameters(*kReplicatedToy()))
      numels.push_back(parameter.tensor.numel());
    const GradientBuckets buckets = gradient_buckets(numels, kBucketOfABlock);
    std::string places;  // digit i is the number of the bucket of parameter i
    for (const auto& place : buckets.places)
      places += std::to_string(place.bucket);
    rank.observe("places", places);
    rank.observe("buckets", buckets.numels);
  });
  // The embedding is in bucket 4, the head in 3, the three blocks in 2, 1 and 0.
  EXPECT_EQ(run.at("places"), "43222111000");
  EXPECT_EQ(run.at("buckets"), nlohmann::json({59, 59, 59, 7, 77}));
  expect_said(0, {},
              "Bucket 0 has blocks2, bucket 1 has blocks1 and bucket 2 has blocks0, with 59 "
              "elements each. The head needs 7 elements and finds 1, so it begins bucket 3. The "
              "embedding does not fit beside it, so bucket 4 has its 77 elements");
}

TEST(HandoutOfTask0,
     the_answer_to_prediction_2_of_task_0_has_the_calls_and_bytes_of_the_all_reduces_of_a_run) {
  const Values run = observed_on(2, [](TestRank& rank) {
    const auto model = kReplicatedToy();
    const auto comm = rank.communicator();
    const auto observe_calls = [&](const std::string& how) {
      const auto calls = comm->take_log();
      int64_t bytes = 0;
      for (const Call& call : calls)
        bytes += call.bytes;
      rank.observe("calls " + how, calls.size());
      rank.observe("bytes " + how, bytes);
    };
    kPlainLoss(*model, rank.rank()).backward();
    all_reduce_gradients(distinct_parameters(*model), *comm);
    observe_calls("of each");
    reduce_in_buckets(*model, comm);
    observe_calls("in buckets");
  });
  expect_said(
      0, run,
      "Without buckets there are {calls of each} calls, and a rank receives {bytes of each} "
      "bytes. With buckets there are {calls in buckets} calls, and a rank receives {bytes "
      "in buckets} bytes");
}

TEST(HandoutOfTask0,
     the_answer_to_prediction_3_of_task_0_has_the_simulated_time_of_waiting_for_all_reduces) {
  const auto clock = std::make_shared<CountedClock>();
  const Values run = observed_by(run_ranks(
      4,
      [&](TestRank& rank) {
        const auto model = kReplicatedToy();
        const auto comm = rank.communicator();
        for (const auto& block : model->blocks)
          block->register_full_backward_pre_hook([&](Module&) { clock->pass(40'000); });
        const auto observe_wait = [&](const std::string& how, const std::function<void()>& reduce) {
          const int64_t begin = clock->now();
          reduce();
          rank.observe(how, (clock->now() - begin) / 1'000);
        };
        kPlainLoss(*model, rank.rank()).backward();
        observe_wait("each", [&] { all_reduce_gradients(distinct_parameters(*model), *comm); });
        observe_wait("buckets", [&] { reduce_in_buckets(*model, comm); });
        model->zero_grad();
        const auto parallel = make_data_parallel(*model, comm, kBucketOfABlock);
        observe_wait("backward", [&] { kPlainLoss(*model, rank.rank()).backward(); });
        observe_wait("overlap", [&] { parallel->finish(); });
      },
      over_counted_link(clock, std::chrono::microseconds(1))));
  EXPECT_EQ(run.at("backward"), 3 * 40);
  expect_said(
      0, run,
      "Without buckets the ranks wait for 11 of them, {each} microseconds. With buckets they "
      "wait for 5, {buckets} microseconds.");
  expect_said(
      0, run,
      "The all-reduces of the last three are issued only at the end of backward: {overlap} micro");
}

TEST(HandoutOfTask0,
     the_answer_to_prediction_4_of_task_0_has_the_bytes_that_a_rank_of_ddp_holds_and_receives) {
  const Values run = observed_on(4, [](TestRank& rank) {
    const auto model = make_model("small");
    const auto comm = rank.communicator();
    const auto parallel = make_data_parallel(*model, comm);
    (*model)(at::arange(4).view({1, 4})).square().mean().backward();
    parallel->finish();
    int64_t received = 0, held = 0;
    for (const Call& call : comm->take_log())
      received += call.bytes;
    std::vector<Piece> pieces;
    for (const auto& parameter : distinct_parameters(*model)) {
      held += static_cast<int64_t>(parameter.tensor.nbytes() + parameter.tensor.grad().nbytes());
      pieces.push_back({parameter.tensor.flatten(), {}, {}, {}, {}});
    }
    allocate_state({}, pieces);
    for (const Piece& piece : pieces)
      held += static_cast<int64_t>(piece.exp_avg.nbytes() + piece.exp_avg_sq.nbytes());
    rank.observe("held", held);
    rank.observe("received", received);
  });
  expect_said(0, run, "16 N = {held} bytes, at W = 4 as at W = 8");
  expect_said(0, run, "It receives 2 x 3/4 x 4 N = {received} bytes.");
}

}  // namespace
}  // namespace fsdp
