#include <comm/communicator_options.h>
#include "untrained_strategy.h"

namespace fsdp {
namespace {

TEST(InjectedFault, a_run_reports_that_it_ended_before_the_call_at_which_the_option_fault_acts) {
  TrainConfig config = small_run();
  config.ranks.comm.fault = Fault{Fault::Kind::kill, 1, 99'999};
  const Outcome run = train(with<UntrainedStrategy>(), config);
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.errors,
            "fsdp train: --fault was not reached: rank 1 made fewer than 100000 calls\n");
}

}  // namespace
}  // namespace fsdp
