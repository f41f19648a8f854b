#include <ATen/Parallel.h>
#include <base/processes.h>
#include <base/standard_output.h>
#include <comm/call_rings.h>
#include <comm/collective_error.h>
#include <comm/recording.h>
#include <launch/rank_process.h>
#include <launch/shared_region.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>

extern "C" void __cxa_finalize(void*);  // NOLINT: the C++ ABI's name

namespace fsdp {
namespace {

void keep_message(const RankContext& context, const std::string& message) {
  char* page = context.shared->message(context.rank);
  size_t length = std::min(message.size(), SharedRegion::kMessageBytes - 1);
  std::memcpy(page, message.data(), length);
  page[length] = 0;
}

int run_body(const RankContext& context, const std::function<int(const RankContext&)>& body) {
  std::string failure;
  int status = 1;
  try {
    record_rank(context.rank);
    const int code = body(context);
    if (code == 0) flush_output();
    if (code != 0) failure = "exit status " + std::to_string(code);
    // The system keeps only 8 bits of an exit status, so 256 would become 0, which means success.
    status = code == 0 ? 0 : std::clamp(code, 1, 255);
  } catch (const std::exception& error) {
    keep_message(context, failure = message_of(error));
  } catch (...) {
    keep_message(context, failure = "an exception that is not a std::exception");
  }
  end_recording(failure);
  return status;
}

RankContext this_rank;  // the context of this process's rank; valid only in the process of a rank
int returned = -1;      // the exit status of the rank; -1: the rank's function has not returned yet

[[noreturn]] void end_rank(int status) {
  std::cout.flush();
  std::cerr.flush();
  const std::string lost = status == 0 ? lost_output() : "";
  if (status == 0) keep_message(this_rank, lost);
  std::fflush(nullptr);
  _exit(lost.empty() ? status : 1);
}

// Keeps exit() from destroying objects that the rank has inherited. exit() first destroys the
// thread-local objects, the latest first. So this object is destroyed after those that the rank has
// made and before inherited ones. Its destructor runs the exit handlers, the latest first: they
// destroy the static objects that the rank has made, and the handler of end_by_exit() then ends the
// process.
struct BeforeInheritedObjects {
  ~BeforeInheritedObjects() {
    if (returned >= 0) __cxa_finalize(nullptr);
  }
};

// Registers the exit handlers of a rank. Must be called before the rank makes an object: then
// exit() first destroys all objects of the rank, and afterwards runs the std::atexit() handler of
// this function, which ends the process.
void end_by_exit(const RankContext& context) {
  this_rank = context;
  std::atexit([] { end_rank(returned); });
  // The on_exit() handler ends a rank that calls exit() itself. leave() ends a rank through
  // __cxa_finalize(), which does not run handlers of on_exit().
  on_exit([](int status, void*) { end_rank(status); }, nullptr);
  [[maybe_unused]] static thread_local BeforeInheritedObjects barrier;
}

// Ends this rank with exit(). Destructors of static objects may run for
// SharedRegion::longest_wait(); after a failure for at most 5 s, because the process that forked
// this rank waits for its end.
[[noreturn]] void leave(int status) {
  returned = status;
  // The time limit for the destructors of static objects [ms].
  int64_t limit = this_rank.shared->longest_wait().count();
  if (status == 0) keep_message(this_rank, "the destructor of a static object has not returned");
  if (status != 0) limit = std::min<int64_t>(limit, 5'000);
  signal(SIGALRM, [](int) { _exit(returned == 0 ? 1 : returned); });
  const itimerval timer{{}, {limit / 1000, limit % 1000 * 1000}};
  setitimer(ITIMER_REAL, &timer, nullptr);
  std::exit(status);
}

void use_one_thread() {
  if (std::getenv("OMP_NUM_THREADS") == nullptr) at::set_num_threads(1);
}

}  // namespace

void run_rank(const RankContext& context, pid_t parent,
              const std::function<int(const RankContext&)>& body) {
  end_by_exit(context);
  setpgid(0, 0);
  end_with(parent);
  // This rank has a process group of its own. If SIGTTOU were not ignored, the group would be
  // stopped when it writes to a terminal (stty tostop).
  signal(SIGTTOU, SIG_IGN);
  use_one_thread();
  leave(run_body(context, body));
}

void replay_rank(int world_size, const std::function<int(const RankContext&)>& body) {
  const auto rank = take_replay();
  if (!rank) return;
  const RankContext context{*rank, world_size, SharedRegion::create(world_size)};
  CallRings(context.shared->call_rings(), Group::world(world_size)).set_local_ranks({*rank});
  use_one_thread();
  replay_breakpoint_begin();
  const int status = run_body(context, body);
  std::cout.flush();
  std::fflush(nullptr);
  _exit(status);
}

}  // namespace fsdp
