#include <gtest/gtest.h>
#include <hosts/store_client.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "exit_status.h"
#include "expect_text.h"
#include "fork_process.h"
#include "shared_words.h"
#include "torchrun.h"

namespace fsdp {
namespace {

using namespace std::chrono_literals;

// The process that hosts the store is stopped, so the store does not answer, as if its host had
// lost its cable.
TEST(StoreRequests,
     a_request_to_the_store_fails_if_the_store_does_not_answer_within_the_time_limit) {
  const ReservedPort port;
  const LaunchedRank self{0, 1, "127.0.0.1", port.number(), false, "a", 2s};
  const pid_t host = fork_process([&] {
    setpgid(0, 0);
    const StoreServer server(self);
    return pause();
  });
  setpgid(host, host);
  SharedWords talks;
  const auto waits = [&](StoreRequests& talk) {
    ++talks[0];
    talk.comes("what never comes", 1h);
    return std::string();
  };
  StoreClientProcess one(self, waits), other(self, waits);
  wait_until(talks[0], 2);
  kill(-host, SIGSTOP);
  alarm(60);
  const std::string silent = "the store does not answer";
  EXPECT_CONTAINS(error_of<std::runtime_error>([&] { one.answer(); }), silent);
  EXPECT_CONTAINS(error_of<std::runtime_error>([&] {
                    while (!other.answer_so_far())
                      usleep(10'000);
                  }),
                  silent);
  alarm(0);
  kill(-host, SIGKILL);
  status_of(host);
}

}  // namespace
}  // namespace fsdp
