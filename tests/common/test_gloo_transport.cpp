#include <comm/communicator.h>
#include <comm/communicator_options.h>
#include <gtest/gtest.h>
#include <hosts/rendezvous.h>
#include <launch/launcher.h>
#include <launch/rank_context.h>
#include <launch/shared_region.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "collectives.h"
#include "expect_text.h"
#include "in_a_process.h"
#include "rank_failure.h"

namespace fsdp {
namespace {

using namespace std::chrono_literals;

TEST(GlooTransport, the_error_of_a_waiting_rank_names_the_rank_that_stopped_in_a_collective) {
  const auto result = launch(2, [](const RankContext& context) {
    const std::chrono::milliseconds timeout(context.rank == 0 ? 500 : 60'000);
    auto comm = Communicator::create(context, {"gloo", timeout, {}});
    Handle call = comm->all_reduce(at::ones({4}), "norm");
    if (context.rank == 1) raise(SIGSTOP);
    call.wait();
    return 0;
  });
  const std::string text = result.ranks[0].text();
  EXPECT_CONTAINS(text, "rank 0: all_reduce norm (collective #0) failed in gloo (");
  EXPECT_CONTAINS(text, "): rank 1 called it but has not waited for it\n");
  EXPECT_CONTAINS(
      text,
      "likely cause: rank 1 was stopped by signal 19 (Stopped (signal)); SIGCONT continues it");
}

TEST(GlooTransport, if_too_few_files_may_be_open_the_error_states_how_many_gloo_needs) {
  const auto with_limit = [](rlim_t files) {
    return failure(launch(4, [&](const RankContext& context) {
      const rlimit limit{files, files};
      setrlimit(RLIMIT_NOFILE, &limit);
      all_gather(*Communicator::create(context, {"gloo", 5000ms, {}}), "layers.0");
      return 0;
    }));
  };
  const std::string text = with_limit(12);
  EXPECT_CONTAINS(text, ": backend gloo needs ");
  EXPECT_CONTAINS(text,
                  " open files to connect 4 ranks, and this process may have 12; raise the limit");
  // With as many open files as the error says, gloo connects all ranks.
  const rlim_t needed = std::stoul(text.substr(text.find("needs ") + 6));
  EXPECT_EQ(with_limit(needed), "");
}

TEST_IN_A_PROCESS(GlooTransport,
                  the_rendezvous_fails_at_once_if_its_path_in_proc_cannot_be_opened) {
  const auto shared = SharedRegion::create_for_started(2);
  const std::string path = shared->rendezvous_path();
  // Closes the file descriptor that the path names. So the path cannot be opened, as if /proc were
  // not mounted.
  close(std::stoi(path.substr(path.rfind('/') + 1)));
  EXPECT_EQ(error_of([&] {
              rendezvous_of({0, 2, shared}, Group::world(2), "", std::chrono::hours(1));
            }),
            "cannot open " + path + ": is /proc mounted?");
}

}  // namespace
}  // namespace fsdp
