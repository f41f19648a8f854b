#include <ATen/Parallel.h>
#include <base/processes.h>
#include <base/standard_output.h>
#include <base/text.h>
#include <comm/call_rings.h>
#include <comm/collective_error.h>
#include <comm/farewell.h>
#include <comm/forked_ranks.h>
#include <comm/handover.h>
#include <comm/held_signals.h>
#include <comm/join.h>
#include <comm/launcher.h>
#include <comm/recording.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <numeric>
#include <stdexcept>
#include <system_error>

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
    status = code == 0 ? 0 : std::clamp(code, 1, 255);  // the system keeps eight bits: 256 were 0
  } catch (const std::exception& error) {
    keep_message(context, failure = message_of(error));
  } catch (...) {
    keep_message(context, failure = "an exception that is no std::exception");
  }
  end_recording(failure);
  return status;
}

RankContext this_rank;  // of a process that is one
int returned = -1;      // the status by which its function has returned

[[noreturn]] void end_rank(int status) {
  std::cout.flush();
  std::cerr.flush();
  const std::string lost = status == 0 ? lost_output() : "";
  if (status == 0) keep_message(this_rank, lost);
  std::fflush(nullptr);
  _exit(lost.empty() ? status : 1);
}

// exit() first destroys the thread-local objects, the latest first: this one when those are gone
// that the rank has made. Then its static objects and handlers have their turn, and inherited ones
// never.
struct BeforeInheritedObjects {
  ~BeforeInheritedObjects() {
    if (returned >= 0) __cxa_finalize(nullptr);
  }
};

// Must be called before the rank makes an object: the last one that exit() comes to ends it.
void end_by_exit(const RankContext& context) {
  this_rank = context;
  std::atexit([] { end_rank(returned); });
  // If the rank calls exit() itself. __cxa_finalize() passes over this kind of handler.
  on_exit([](int status, void*) { end_rank(status); }, nullptr);
  [[maybe_unused]] static thread_local BeforeInheritedObjects barrier;
}

// Leaves by exit(), which may take as long as a rank may wait for another; a rank that has failed
// and is waited for, 5 s.
[[noreturn]] void leave(int status) {
  returned = status;
  int64_t limit = this_rank.shared->longest_wait().count();  // [ms]
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

[[noreturn]] void run_rank(const RankContext& context, pid_t parent,
                           const std::function<int(const RankContext&)>& body) {
  end_by_exit(context);
  setpgid(0, 0);
  end_with(parent);
  // In a process group of its own it would be stopped when it writes to a terminal (stty tostop).
  signal(SIGTTOU, SIG_IGN);
  use_one_thread();
  leave(run_body(context, body));
}

// In place of the ranks that the caller would fork, if FSDP_REPLAY names one of them: that rank.
void replay_one(int world_size, const std::function<int(const RankContext&)>& body) {
  const auto rank = take_replay();
  if (!rank) return;
  const RankContext context{*rank, world_size, SharedRegion::create(world_size)};
  CallRings(context.shared->call_rings(), Group::world(world_size)).set_ranks_here({*rank});
  use_one_thread();
  rank_begins();
  const int status = run_body(context, body);
  std::cout.flush();
  std::fflush(nullptr);
  _exit(status);
}

void say(const std::string& program, const std::string& text) {
  const char* name = program.empty() ? program_invocation_short_name : program.c_str();
  std::fprintf(stderr, "%s: %s\n", name, text.c_str());
}

[[noreturn]] void end_by(int signal, HeldSignals& held) {
  ::signal(signal, SIG_DFL);
  held.restore();
  raise(signal);
  _exit(128 + signal);
}

// The ranks that one process forks.
struct Share {
  int first, end;
  std::shared_ptr<SharedRegion> shared;
  std::shared_ptr<const Hosts> hosts{};
  const Handover* handover{};
};

void fork_ranks(const Share& share, ForkedRanks& ranks, HeldSignals& held,
                const std::function<int(const RankContext&)>& body) {
  std::fflush(nullptr);  // a child would write what is still in the buffers a second time
  std::cout.flush();
  const pid_t parent = getpid();
  for (int rank = share.first; rank < share.end; ++rank) {
    const pid_t pid = fork();
    if (pid < 0) {
      throw std::system_error(errno, std::generic_category(),
                              "cannot fork rank " + std::to_string(rank));
    }
    if (pid == 0) {
      held.restore();
      Handover::current = share.handover;
      run_rank({rank, share.shared->world_size(), share.shared, share.hosts}, parent, body);
    }
    ranks.add(rank, pid);
  }
}

// Ends those that are left because one has failed, here or on another host. If none has, one was
// stopped for too long.
void end_ranks(ForkedRanks& ranks, LaunchResult& result, bool elsewhere) {
  for (RankExit& exit : ranks.end_all()) {
    if (elsewhere) result.first_failure = exit.rank;
    if (result.ok() && exit.frozen_by != 0) {
      result.first_failure = exit.rank;
    } else {
      exit.stopped = exit.signal == SIGKILL;
    }
    result.ranks[exit.rank] = std::move(exit);
  }
}

// Forks the ranks and waits for them.
LaunchResult run_here(const Share& share, HeldSignals& held,
                      const std::function<int(const RankContext&)>& body,
                      const std::function<void()>& on_interrupt, Farewell* farewell = nullptr) {
  LaunchResult result;
  result.ranks.resize(share.shared->world_size());
  if (!share.hosts) begin_recording();
  ForkedRanks ranks(share.shared);
  fork_ranks(share, ranks, held, body);
  for (;;) {
    for (RankExit& exit : ranks.reap()) {
      if (!exit.ok() && result.ok()) result.first_failure = exit.rank;
      result.ranks[exit.rank] = std::move(exit);
    }
    auto limit = ranks.limit_of_stopped();
    const bool elsewhere = result.ok() && ranks.any() && farewell && farewell->others_failed();
    if (!result.ok() || elsewhere || (limit && *limit <= HeldSignals::Time::clock::now())) {
      end_ranks(ranks, result, elsewhere);
    }
    if (!ranks.any()) return result;
    if (farewell) {
      const auto next_look = HeldSignals::Time::clock::now() + Farewell::kLook;
      limit = std::min(limit.value_or(next_look), next_look);
    }
    const int signal = held.next(limit);
    if (signal == 0 || signal == SIGCHLD) continue;
    if (held.passes_on(signal)) {
      ranks.pass_on(signal);
      continue;
    }
    if (signal == SIGTSTP) {
      ranks.send(SIGSTOP);
      held.stop_here();
    }
    if (signal == SIGTSTP || signal == SIGCONT) {
      ranks.send(SIGCONT);
      continue;
    }
    ranks.end_all();
    if (on_interrupt) on_interrupt();
    end_by(signal, held);
  }
}

}  // namespace

RankStatus RankExit::status() const {
  if (signal != 0) return {RankStatus::Kind::killed, signal};
  return {RankStatus::Kind::ended, code};
}

std::string RankExit::text() const {
  std::string who = "rank " + std::to_string(rank);
  std::string where = last_call.empty() ? "" : " after collective " + last_call;
  if (frozen_by == SIGTTIN && !stopped) {
    return who + " reads from the terminal" + where +
           ", and was stopped by signal 21: read before start(), or from a file or a pipe";
  }
  if (frozen_by != 0 && !stopped) {
    return who + " was stopped by " + signal_text(frozen_by) + where +
           ", and nobody has let it go on (SIGCONT) within the time limit";
  }
  if (stopped) return who + " was stopped" + where;
  if (signal != 0 && message.empty()) return who + ' ' + status().text() + where;
  if (ok()) return who + " succeeded";
  if (message.empty()) return who + " ended with exit status " + std::to_string(code) + where;
  const std::string end = signal == 0 ? "" : "; it " + status().text();
  return (message.rfind(who, 0) == 0 ? message : who + " failed: " + message) + end;
}

LaunchResult launch(int world_size, const std::function<int(const RankContext&)>& body,
                    const std::function<void()>& on_interrupt) {
  require_one_thread("launch()");
  replay_one(world_size, body);
  auto shared = SharedRegion::create(world_size);
  HeldSignals held;
  return run_here({0, world_size, shared}, held, body, on_interrupt);
}

std::vector<int> RankContext::ranks_here() const {
  if (hosts) return hosts->ranks_of(hosts->here());
  std::vector<int> all(static_cast<size_t>(world_size));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

int RankContext::local_rank() const {
  const auto here = ranks_here();
  return static_cast<int>(std::find(here.begin(), here.end(), rank) - here.begin());
}

namespace {

using Body = std::function<int(const RankContext&)>;
using Say = std::function<void(const std::string&)>;

std::function<void()> if_interrupted(const AtEnd& at_end) {
  return [&at_end] { at_end("the run was interrupted"); };
}

// The failure of one rank makes others fail: one process prints it, once, and before a signal can
// end this process. A killed rank is always printed: others may have noticed it first. Returns the
// story, or nothing if another process prints it.
std::string story_of(const RankExit& failed, SharedRegion& shared) {
  const bool first = shared.first_to_fail();
  // For ranks that other processes have forked.
  CallRings(shared.call_rings(), Group::world(shared.world_size()))
      .set_status(failed.rank, failed.status());
  return first || failed.signal != 0 ? failed.text() : "";
}

// Tells how they have ended. Returns the exit status.
int conclude(const Share& share, const LaunchResult& result, const AtEnd& at_end,
             Farewell* farewell, const Say& say) {
  const int told = result.ok() ? share.first : result.first_failure;
  const RankExit& end = result.ranks[static_cast<size_t>(told)];
  const std::string own = farewell || result.ok() ? "" : story_of(end, *share.shared);
  const std::string story = farewell ? farewell->say(end) : own;
  if (!story.empty()) say(story);
  if (const std::string recorded = recorded_text(); !recorded.empty()) say(recorded);
  if (result.ok()) return at_end("") ? 0 : 1;
  const std::string text = end.text();
  write_error_file(story.empty() ? text.substr(0, text.find('\n')) : story);
  at_end(text);
  return 1;
}

// A rank that the run does not take waits with it, so that its launcher has it for another try.
int wait_spare(const StartedRank& self, int world_size, const Say& say) {
  say("rank " + std::to_string(self.rank) + " is spare: this run takes " +
      std::to_string(world_size) + " of the " + std::to_string(self.world_size) + " ranks");
  try {
    return Farewell::all_succeed(self) ? 0 : 1;
  } catch (const std::runtime_error&) {
    return 1;  // the store has gone; the ranks that train print why
  }
}

int run_started(const StartedRank& self, const Body& body, const AtEnd& at_end, const Say& say,
                const AfterLoss& after_loss) {
  Joined joined = join(self, say);
  HeldSignals held;
  const auto handover = after_loss ? std::make_unique<Handover>() : nullptr;
  Body runs = body;
  for (;;) {  // once, and again after each loss of a host
    const int rank = joined.hosts->self.rank;
    const Share share{rank, rank + 1, joined.shared, joined.hosts, handover.get()};
    const auto farewell = Farewell::listen(joined, handover != nullptr);
    LaunchResult result = run_here(share, held, runs, if_interrupted(at_end), farewell.get());
    RankExit& end = result.ranks[static_cast<size_t>(rank)];
    Verdict verdict;
    if (handover && farewell)
      verdict = farewell->call_roll(end, handover->offered(), after_loss, held, say);
    const auto has = [rank](const std::vector<int>& ranks) {
      return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
    };
    if (has(verdict.ranks)) {
      handover->choose(verdict.steps);
      const std::string failure = join_again(joined, verdict.ranks, say);
      if (!failure.empty())
        runs = [failure](const RankContext&) -> int { throw std::runtime_error(failure); };
      continue;
    }
    if (has(verdict.spares)) {
      handover->free();
      return wait_spare(Farewell::of_spares(self), static_cast<int>(verdict.ranks.size()), say);
    }
    if (verdict.kind == Verdict::Kind::is_done) {
      end = RankExit();
      end.rank = rank;
      result.first_failure = -1;
    }
    const int status = conclude(share, result, at_end, farewell.get(), say);
    if (handover && rank == 0) Farewell::end_spares(self, status == 0);
    constexpr std::chrono::seconds kForOthersToEnd{2};
    if (farewell && joined.store)
      farewell->wait_for_all(status == 0 ? self.timeout : kForOthersToEnd, held);
    return status;
  }
}

}  // namespace

int start(int world_size, const Body& body, const std::string& program, const AtEnd& given,
          std::chrono::milliseconds timeout, const AfterLoss& after_loss) {
  const Say tell_user = [&](const std::string& text) { say(program, text); };
  const AtEnd at_end = given ? given : [](const std::string&) { return true; };
  try {
    require_one_thread("start()");
    if (auto self = started_rank()) {
      if (self->world_size < world_size)
        throw std::invalid_argument(
            self->launcher + " has started " + counted(self->world_size, "rank") +
            ", but this program is to run on " + std::to_string(world_size));
      static int times = 0;  // that this process has begun to run ranks
      self->group += '/' + std::to_string(times++);
      self->timeout = timeout;
      if (self->rank >= world_size)
        return wait_spare(after_loss ? Farewell::of_spares(*self) : *self, world_size, tell_user);
      self->has_spares = self->world_size > world_size;
      self->world_size = world_size;
      return run_started(*self, body, at_end, tell_user, after_loss);
    }
    replay_one(world_size, body);
    const Share share{0, world_size, SharedRegion::create(world_size)};
    HeldSignals held;
    return conclude(share, run_here(share, held, body, if_interrupted(at_end)), at_end, nullptr,
                    tell_user);
  } catch (const std::invalid_argument& error) {
    tell_user(message_of(error));
    return 2;
  } catch (const std::exception& error) {
    tell_user(message_of(error));
    return 1;
  }
}

}  // namespace fsdp
