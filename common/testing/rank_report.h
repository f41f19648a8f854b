#pragma once

#include <launch/rank_exit.h>
#include <testing/channel.h>
#include <trace/event.h>

#include <atomic>
#include <map>

namespace fsdp {

// Why a signal ended a rank. The rank writes it into shared memory before it ends.
struct Crash {
  std::atomic<bool> seen;
  std::atomic<uintptr_t> address;  // the access to this address raised SIGSEGV
  char refused[200];  // name of the function that the rank called although no task may; or ""
};

// Everything that is known about one rank after the run.
struct RankReport {
  RankExit exit;
  bool first_to_fail{};  // whether this rank's failure ended the other ranks
  bool finished{};       // whether the rank reached the end of the body
  std::map<std::string, nlohmann::json> observations;
  // Name of an observation -> number of entries of `steps` up to the entry of the observation.
  std::map<std::string, size_t> observed_after;
  std::vector<std::string> steps;  // what the rank did, in order, one text for each step
  // Describes the access that raised SIGSEGV, or the call of a function that no task may call;
  // empty if neither happened.
  std::string crash;
  std::string latest;  // name of the last observation; empty if the rank observed nothing
  // Describes the frames in the rank's channel that TestRank cannot have sent; empty: there are
  // none.
  std::string not_its_own;

  bool ok() const { return finished && exit.ok() && not_its_own.empty(); }
};

// Both functions return a frame (a JSON value) that a rank sends to the test's own process:
// observation_frame() for each observation, finished_frame() when the rank has reached the end of
// the test. `events`: the number of events that the rank had recorded when it made the observation.
nlohmann::json observation_frame(const std::string& name, const nlohmann::json& value,
                                 uint64_t events);
nlohmann::json finished_frame();

// Returns the report of one rank, from the frames that it has sent. The `events` that the rank
// recorded become entries of RankReport::steps, between those of its observations.
RankReport read_report(const RankExit& exit, bool first_to_fail, const Channel& channel,
                       const std::vector<Event>& events = {}, const Crash* crash = nullptr);

// Describes what went wrong in a run: first the frames that TestRank cannot have sent, then how the
// rank that caused the failure ended, then how the other ranks ended. Returns "" if nothing went
// wrong.
std::string describe_failure(const std::vector<RankReport>& ranks);
// Returns the rank that caused the failure; -1 if no rank did.
int rank_that_failed(const std::vector<RankReport>& ranks);

}  // namespace fsdp
