#include <comm/communicator.h>
#include <comm/communicator_options.h>
#include <comm/ledger.h>
#include <gtest/gtest.h>

#include <optional>

#include "expect_text.h"
#include "rank_failure.h"

namespace fsdp {
namespace {

CommunicatorOptions over_gloo(std::optional<Compare> compare, std::optional<Fault> fault = {}) {
  return {
      .backend = "gloo", .timeout = std::chrono::seconds(5), .fault = fault, .compare = compare};
}

// Issues an all-gather of 2 elements on each rank. Rank 0 names another unit ("layers.0") than the
// other ranks ("layers.1").
void call_for_different_units(Communicator& comm) {
  const std::string unit = comm.rank() == 0 ? "layers.0" : "layers.1";
  comm.all_gather_into(at::empty({4}), at::ones({2}), unit).wait();
}

void call_for_one_unit(Communicator& comm) {
  comm.all_gather_into(at::empty({4}), at::ones({2}), "layers.0").wait();
}

void call_for_different_units_in_the_second_iteration(Communicator& comm) {
  call_for_one_unit(comm);
  comm.end_first_iteration();
  call_for_different_units(comm);
  comm.barrier("end").wait();
}

const char* const kDifference = "differs between ranks";

TEST(CallComparison,
     by_default_ranks_over_gloo_still_compare_collectives_after_the_first_iteration) {
  EXPECT_CONTAINS(failure(2, over_gloo({}), call_for_different_units_in_the_second_iteration),
                  kDifference);
}

TEST(CallComparison, with_compare_first_iteration_ranks_compare_no_later_collective) {
  const auto options = over_gloo(Compare::first_iteration);
  EXPECT_CONTAINS(failure(2, options, call_for_different_units), kDifference);
  EXPECT_EQ(failure(2, options, call_for_different_units_in_the_second_iteration), "");
}

TEST(CallComparison,
     with_compare_never_all_gathers_that_differ_cause_no_error_even_if_they_overflow_the_ledger) {
  const auto body = [](Communicator& comm) {
    for (uint64_t i = 0; i < 3 * Ledger::kRing; ++i)
      call_for_different_units(comm);
    comm.barrier("end").wait();
  };
  EXPECT_EQ(failure(2, over_gloo(Compare::never), body), "");
}

TEST(CallComparison, with_compare_never_ranks_still_compare_their_barriers) {
  const auto body = [](Communicator& comm) {
    comm.barrier("start").wait();
    comm.barrier("end").wait();
  };
  EXPECT_CONTAINS(failure(2, over_gloo(Compare::never, Fault{Fault::Kind::skip, 1, 0}), body),
                  kDifference);
}

TEST(CallComparison, with_compare_never_an_error_still_names_the_last_collective_of_a_rank) {
  const auto body = [](Communicator& comm) {
    call_for_one_unit(comm);
    if (comm.rank() == 0) std::abort();
    comm.barrier("end").wait();
  };
  EXPECT_CONTAINS(failure(2, over_gloo(Compare::never), body),
                  "after collective #0 all_gather layers.0");
}

TEST(CallComparison, creating_a_communicator_over_shm_throws_unless_every_collective_is_compared) {
  EXPECT_CONTAINS(failure(2, {.compare = Compare::never}, call_for_one_unit),
                  "calls over backend shm must always be compared");
}

}  // namespace
}  // namespace fsdp
