#include <comm/communicator.h>
#include <comm/ledger.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "expect_text.h"
#include "rank_failure.h"

namespace fsdp {
namespace {

using namespace std::chrono_literals;

CommunicatorOptions over_gloo(std::optional<Compare> compare, std::optional<Fault> fault = {}) {
  CommunicatorOptions options{"gloo", 5000ms, fault};
  options.compare = compare;
  return options;
}

std::string failure(const CommunicatorOptions& options,
                    const std::function<void(Communicator&)>& body) {
  return failure(launch(2, [&](const RankContext& context) {
    at::set_num_threads(1);
    const auto comm = Communicator::create(context, options);
    body(*comm);
    return 0;
  }));
}

// Calls that move the same bytes for units of different names.
void call_for_different_units(Communicator& comm) {
  const at::Tensor all = at::empty({4});
  const std::string unit = comm.rank() == 0 ? "layers.0" : "layers.1";
  comm.all_gather_into(all, at::ones({2}), unit).wait();
}

void call_for_one_unit(Communicator& comm) {
  comm.all_gather_into(at::empty({4}), at::ones({2}), "layers.0").wait();
}

const char* const kDifference = "differs between ranks";

TEST(CallComparison, compares_every_call_of_a_cpu_transport_by_default) {
  const std::string text = failure(over_gloo({}), [](Communicator& comm) {
    call_for_one_unit(comm);
    comm.end_first_iteration();
    call_for_different_units(comm);
  });
  EXPECT_CONTAINS(text, kDifference);
}

TEST(CallComparison, first_iteration_compares_the_first_iteration_alone) {
  const auto options = over_gloo(Compare::first_iteration);
  EXPECT_CONTAINS(failure(options, call_for_different_units), kDifference);
  EXPECT_EQ(failure(options,
                    [](Communicator& comm) {
                      call_for_one_unit(comm);
                      comm.end_first_iteration();
                      call_for_different_units(comm);
                      comm.barrier("end").wait();
                    }),
            "");
}

TEST(CallComparison, never_compares_any_of_more_calls_than_the_ledger_holds) {
  EXPECT_EQ(failure(over_gloo(Compare::never),
                    [](Communicator& comm) {
                      for (uint64_t i = 0; i < 3 * Ledger::kRing; ++i)
                        call_for_different_units(comm);
                      comm.barrier("end").wait();
                    }),
            "");
}

TEST(CallComparison, a_barrier_always_compares) {
  const std::string text =
      failure(over_gloo(Compare::never, Fault{Fault::Kind::skip, 1, 0}), [](Communicator& comm) {
        comm.barrier("start").wait();
        comm.barrier("end").wait();
      });
  EXPECT_CONTAINS(text, kDifference);
}

TEST(CallComparison, the_last_call_is_known_even_if_calls_are_not_compared) {
  const std::string text = failure(over_gloo(Compare::never), [](Communicator& comm) {
    call_for_one_unit(comm);
    if (comm.rank() == 0) std::abort();
    comm.barrier("end").wait();
  });
  EXPECT_CONTAINS(text, "after collective #0 all_gather layers.0");
}

TEST(CallComparison, shm_requires_that_every_call_is_compared) {
  CommunicatorOptions options;
  options.compare = Compare::never;
  const std::string text = failure(options, call_for_one_unit);
  EXPECT_CONTAINS(text, "calls over backend shm have to be compared always");
}

}  // namespace
}  // namespace fsdp
