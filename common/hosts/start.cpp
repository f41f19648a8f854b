#include <base/processes.h>
#include <base/text.h>
#include <comm/call_rings.h>
#include <comm/collective_error.h>
#include <comm/recording.h>
#include <hosts/exit_protocol.h>
#include <hosts/handover.h>
#include <hosts/join.h>
#include <hosts/start.h>
#include <launch/launched.h>
#include <launch/rank_exit.h>
#include <launch/rank_process.h>
#include <launch/run_ranks.h>
#include <launch/shared_region.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <stdexcept>

namespace fsdp {
namespace {

using Body = std::function<int(const RankContext&)>;
using Log = StoreClientProcess::Log;

void say(const std::string& program, const std::string& text) {
  const char* name = program.empty() ? program_invocation_short_name : program.c_str();
  std::fprintf(stderr, "%s: %s\n", name, text.c_str());
}

std::function<void()> if_interrupted(const AtEnd& at_end) {
  return [&at_end] { at_end("the run was interrupted"); };
}

// Returns the error text if this process must print it, else an empty text. One failure makes other
// ranks fail, so only the process whose rank failed first prints the error. Signals are blocked
// until it has printed, so no signal ends it before. A process whose rank was killed always prints,
// because another rank may have failed as a consequence before this process noticed the kill.
std::string story_of(const RankExit& failed, SharedRegion& shared) {
  const bool first = shared.first_to_fail();
  // Shows the failure to ranks that other processes of this host have forked.
  CallRings(shared.call_rings(), Group::world(shared.world_size()))
      .set_status(failed.rank, failed.status());
  return first || failed.signal != 0 ? failed.text() : "";
}

// Reports how the ranks of this process have ended: prints the error if this process must, and
// calls at_end(). Returns the exit status for main().
int conclude(const Share& share, const LaunchResult& result, const AtEnd& at_end,
             ExitProtocol* exit_protocol, const Log& log) {
  const int told = result.ok() ? share.first : result.first_failure;
  const RankExit& end = result.ranks[static_cast<size_t>(told)];
  const std::string own = exit_protocol || result.ok() ? "" : story_of(end, *share.shared);
  const std::string story = exit_protocol ? exit_protocol->report_exit(end) : own;
  if (!story.empty()) log(story);
  if (const std::string recorded = recorded_text(); !recorded.empty()) log(recorded);
  if (result.ok()) return at_end("") ? 0 : 1;
  const std::string text = end.text();
  write_error_file(story.empty() ? text.substr(0, text.find('\n')) : story);
  at_end(text);
  return 1;
}

// Runs a rank that the run does not use: waits until the run has ended, so that the launcher has
// this rank for another attempt. Returns the exit status.
int wait_spare(const LaunchedRank& self, int world_size, const Log& log) {
  log("rank " + std::to_string(self.rank) + " is spare: this run uses " +
      std::to_string(world_size) + " of the " + std::to_string(self.world_size) + " ranks");
  try {
    return ExitProtocol::all_succeed(self) ? 0 : 1;
  } catch (const std::runtime_error&) {
    return 1;  // the store does not answer; the ranks that train print the cause
  }
}

int run_started(const LaunchedRank& self, const Body& body, const AtEnd& at_end, const Log& log,
                const AfterLoss& after_loss) {
  JoinedRun joined = join(self, log);
  BlockedSignals signals;
  const auto handover = after_loss ? std::make_unique<Handover>() : nullptr;
  int spares = self.spares;
  Body runs = body;
  // Each iteration of this loop forks a rank and waits for its end. After a host was lost, if the
  // run continues on this process, the next iteration forks a new rank in place of the former one.
  for (;;) {
    const int rank = joined.hosts->self.rank;
    const Share share{rank, rank + 1, joined.shared, joined.hosts, handover.get()};
    const auto exit_protocol = ExitProtocol::listen(joined, handover != nullptr);
    const FailuresElsewhere elsewhere{[&exit_protocol] { return exit_protocol->others_failed(); },
                                      ExitProtocol::kLook};
    LaunchResult result = run_ranks(share, signals, runs, if_interrupted(at_end),
                                    exit_protocol ? &elsewhere : nullptr);
    RankExit& end = result.ranks[static_cast<size_t>(rank)];
    Decision decision;
    if (handover && exit_protocol)
      decision =
          exit_protocol->decide_survivors(end, handover->saved_steps(), after_loss, signals, log);
    const auto has = [rank](const std::vector<int>& ranks) {
      return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
    };
    if (has(decision.ranks)) {
      spares += static_cast<int>(decision.spares.size());
      handover->select(decision.steps);
      const std::string failure = rejoin(joined, decision.ranks, log);
      if (!failure.empty())
        runs = [failure](const RankContext&) -> int { throw std::runtime_error(failure); };
      continue;
    }
    if (has(decision.spares)) {
      handover->free();
      return wait_spare(ExitProtocol::of_spares(self), static_cast<int>(decision.ranks.size()),
                        log);
    }
    if (decision.kind == Decision::Kind::done) {
      end = RankExit();
      end.rank = rank;
      result.first_failure = -1;
    }
    const int status = conclude(share, result, at_end, exit_protocol.get(), log);
    if (handover && rank == 0) ExitProtocol::end_spares(self, spares, status == 0);
    constexpr std::chrono::seconds kForOthersToEnd{2};
    if (exit_protocol && joined.store)
      exit_protocol->wait_for_all(status == 0 ? self.timeout : kForOthersToEnd,
                                  handover ? 0 : spares, signals);
    return status;
  }
}

}  // namespace

int start(int world_size, const Body& body, const std::string& program, const AtEnd& given,
          std::chrono::milliseconds timeout, const AfterLoss& after_loss) {
  const Log tell_user = [&](const std::string& text) { say(program, text); };
  const AtEnd at_end = given ? given : [](const std::string&) { return true; };
  try {
    require_one_thread("start()");
    if (auto self = launched_rank()) {
      if (self->world_size < world_size)
        throw std::invalid_argument(self->launcher + " has started " +
                                    counted(self->world_size, "rank") +
                                    ", but this program needs " + std::to_string(world_size));
      static int times = 0;  // how often start() has run in this process under a launcher
      self->group += '/' + std::to_string(times++);
      self->timeout = timeout;
      if (self->rank >= world_size)
        return wait_spare(after_loss ? ExitProtocol::of_spares(*self) : *self, world_size,
                          tell_user);
      self->spares = self->world_size - world_size;
      self->world_size = world_size;
      return run_started(*self, body, at_end, tell_user, after_loss);
    }
    replay_rank(world_size, body);
    const Share share{0, world_size, SharedRegion::create(world_size)};
    BlockedSignals signals;
    return conclude(share, run_ranks(share, signals, body, if_interrupted(at_end)), at_end, nullptr,
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
