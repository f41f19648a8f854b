#include <comm/communicator.h>
#include <comm/communicator_options.h>
#include <comm/ledger.h>
#include <gtest/gtest.h>
#include <hosts/rendezvous.h>
#include <launch/rank_context.h>
#include <launch/shared_region.h>
#include <memory/storage.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <stdexcept>

#include "collectives.h"
#include "expect_text.h"
#include "rank_failure.h"
#include "shared_words.h"

namespace fsdp {
namespace {

using namespace std::chrono_literals;
using Body = std::function<void(Communicator&)>;

class CollectiveFailure : public testing::TestWithParam<std::string> {
 protected:
  static std::string failed(int world_size, const Body& body) {
    return failure(world_size, {GetParam(), 5000ms, {}}, body);
  }
};

INSTANTIATE_TEST_SUITE_P(Transports, CollectiveFailure, testing::Values("shm", "gloo"),
                         [](const auto& info) { return info.param; });

TEST_P(CollectiveFailure,
       a_difference_in_operation_unit_size_dtype_or_root_is_reported_with_both_calls) {
  struct Difference {
    Body second_call;
    const char *of_rank_0, *of_rank_1;
  };
  const std::vector<Difference> differences{
      {[](Communicator& comm) {
         if (comm.rank() == 0) return all_gather(comm, "layers.3");
         comm.reduce_scatter_into(at::zeros({8}), at::zeros({16}), "layers.3").wait();
       },
       "all_gather layers.3 (16 x float, 64 B)", "reduce_scatter layers.3 (16 x float, 64 B)"},
      {[](Communicator& comm) { all_gather(comm, "layers." + std::to_string(comm.rank())); },
       "all_gather layers.0 (16 x float, 64 B)", "all_gather layers.1 (16 x float, 64 B)"},
      {[](Communicator& comm) { all_gather(comm, "head", 8 + comm.rank()); },
       "all_gather head (16 x float, 64 B)", "all_gather head (18 x float, 72 B)"},
      {[](Communicator& comm) {
         const auto dtype = comm.rank() == 0 ? at::kFloat : at::kDouble;
         comm.all_reduce(at::zeros({4}, dtype), "norm").wait();
       },
       "all_reduce norm (4 x float, 16 B)", "all_reduce norm (4 x double, 32 B)"},
      {[](Communicator& comm) { comm.broadcast(at::zeros({4}), comm.rank(), "embed").wait(); },
       "broadcast embed from rank 0 (4 x float, 16 B)",
       "broadcast embed from rank 1 (4 x float, 16 B)"}};
  for (const Difference& difference : differences) {
    const std::string text = failed(2, [&](Communicator& comm) {
      all_gather(comm, "layers.2");
      difference.second_call(comm);
    });
    EXPECT_CONTAINS(text, std::string("collective #1 differs between ranks:\n  rank 0  ") +
                              difference.of_rank_0 + "\n  rank 1  " + difference.of_rank_1 + '\n');
  }
}

// The time limit of a wait is 600 s, but alarm(20) ends a rank after 20 s of waiting. So the test
// passes only if the ranks notice within 20 s that rank 2 has ended.
TEST_P(CollectiveFailure, a_waiting_rank_fails_at_once_and_names_the_rank_that_ended_early) {
  for (const bool exits : {false, true}) {
    const auto leave = [&](Communicator& comm) {
      all_gather(comm, "layers.4");
      if (comm.rank() == 2 && exits) _exit(0);
      if (comm.rank() == 2) return;
      alarm(20);
      comm.barrier("end").wait();
    };
    const auto text = failure(3, {GetParam(), 600s, {}}, leave);
    EXPECT_CONTAINS(
        text,
        "barrier end (collective #1): rank 2 has ended with status 0 after collective #0 "
        "all_gather layers.4\nlikely cause: rank 2 left its function, or called exit()");
  }
}

TEST_P(CollectiveFailure, an_error_names_a_collective_that_a_rank_issued_but_never_waits_for) {
  const auto text = failed(2, [](Communicator& comm) {
    { const Handle dropped = comm.barrier("layers.0"); }
    for (uint64_t i = 0; i < Ledger::kRing; ++i)
      comm.barrier("later").wait();
  });
  EXPECT_CONTAINS(text, "barrier layers.0 (collective #0) was never waited for: its Handle was");
}

// A clock whose now() issues a barrier on `comm` in a second thread. A communicator reads the clock
// during a call, so the call of the second thread begins during a call of the first thread.
struct SecondThread final : Clock {
  int64_t now() override {
    std::async(std::launch::async, [this] { comm->barrier("b").wait(); }).get();
    return 0;
  }
  void sleep_until(int64_t) override {}
  Communicator* comm{};
};

TEST_P(CollectiveFailure, concurrent_calls_of_a_communicator_by_two_threads_throw) {
  const auto second = std::make_shared<SecondThread>();
  const CommunicatorOptions options{.backend = GetParam(), .clock = second};
  const auto call = [&](Communicator& comm) { (second->comm = &comm)->barrier("a").wait(); };
  EXPECT_CONTAINS(failure(1, options, call),
                  "rank 0: two threads use one Communicator at the same time; create one for");
}

TEST_P(CollectiveFailure, an_error_names_alternating_calls_of_two_threads_as_its_cause) {
  const auto text = failed(2, [](Communicator& comm) {
    comm.barrier("a").wait();
    if (comm.rank() == 0) comm.barrier("c").wait();
    std::async(std::launch::async, [&] { comm.barrier("b").wait(); }).get();
  });
  EXPECT_CONTAINS(text,
                  "likely cause: several threads of rank 1 issue collectives, in an order that "
                  "differs between ranks");
}

// Rank 1 issues its two barriers only after rank 0's first wait has failed. So if the communicator
// of rank 0 did not remember the failure, rank 0's second wait would succeed.
TEST_P(CollectiveFailure, after_a_failure_every_call_and_every_wait_throws_the_same_error_at_once) {
  // words[0] is 1 when rank 0 has failed, words[1] is 1 when rank 1 has issued its barriers.
  SharedWords words;
  const auto body = [&](Communicator& comm) {
    if (comm.rank() == 1) wait_until(words[0], 1);
    Handle first = comm.barrier("first"), second = comm.barrier("second");
    if (comm.rank() == 1) {
      words[1] = 1;
      pause();
    }
    const std::string error = error_of([&] { first.wait(); });
    words[0] = 1;
    wait_until(words[1], 1);
    require(error_of([&] { first.wait(); }) == error, "a second wait for the call that failed");
    require(error_of([&] { second.wait(); }) == error, "a wait for another call");
    require(error_of([&] { comm.barrier("third").wait(); }) == error, "another call");
    require(error_of([&] { comm.wait_for_readers(); }) == error, "wait_for_readers()");
    throw std::runtime_error("rank 0: " + error);
  };
  EXPECT_CONTAINS(failure(2, {GetParam(), 500ms, {}}, body),
                  "barrier first (collective #0) timed out after 0.5 s: rank 1 has not called it");
}

// Only a reduce-scatter may have two dtypes: a 16-bit input and an fp32 output.
TEST_P(CollectiveFailure,
       a_collective_of_tensors_of_a_wrong_size_or_dtype_or_without_memory_throws) {
  const auto refusal = [](int64_t outputs, at::ScalarType output_dtype, at::ScalarType input_dtype,
                          bool gathers, int64_t bytes = 0) {
    return failed(2, [=](Communicator& comm) {
      // When a rank ends, it closes its connections. A rank that is still connecting would then
      // fail, so all ranks first wait for each other.
      comm.barrier("all ranks are connected").wait();
      const at::Tensor output = at::zeros({outputs}, output_dtype);
      const at::Tensor input = at::zeros({8}, input_dtype);
      if (bytes > 0) resize_storage(output.storage(), bytes);
      (gathers ? comm.all_gather_into(output, input, "unit")
               : comm.reduce_scatter_into(output, input, "unit"))
          .wait();
    });
  };
  EXPECT_CONTAINS(refusal(15, at::kFloat, at::kFloat, true),
                  "all_gather unit needs an output of 2 times the input's elements: output [15] "
                  "Float, input [8] Float");
  EXPECT_CONTAINS(refusal(16, at::kFloat, at::kBFloat16, true),
                  "needs tensors of one dtype: output [16] Float, input [8] BFloat16");
  EXPECT_CONTAINS(refusal(4, at::kBFloat16, at::kFloat, false),
                  "needs tensors of one dtype: output [4] BFloat16, input [8] Float");
  EXPECT_CONTAINS(refusal(4, at::kDouble, at::kHalf, false),
                  "needs tensors of one dtype: output [4] Double, input [8] Half");
  EXPECT_CONTAINS(
      refusal(16, at::kFloat, at::kFloat, true, /*bytes=*/32),
      "all_gather unit needs tensors with memory: output [16] Float (it needs a storage of "
      "64 bytes, and its storage has 32), input [8] Float");
}

}  // namespace
}  // namespace fsdp
