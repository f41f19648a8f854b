#pragma once

#include <launch/rank_exit.h>
#include <testing/channel.h>
#include <trace/event.h>

#include <atomic>
#include <map>

namespace fsdp {

// Why a signal ended a rank. The rank writes it before it ends.
struct Crash {
  std::atomic<bool> seen;
  std::atomic<uintptr_t> address;  // whose use ends the rank by SIGSEGV
  char refused[200];               // the function that base/refused_call.h refused, or ""
};

// Everything that is known about one rank after the run.
struct RankReport {
  RankExit exit;
  bool first_to_fail{};  // this rank's failure ended the other ranks
  bool finished{};       // the rank reached the end of the body
  std::map<std::string, nlohmann::json> observations;
  std::map<std::string, size_t> observed_after;  // observation -> how many steps came before
  std::vector<std::string> steps;                // what the rank did, in order
  std::string crash;                             // which use of an address ended it, or empty
  std::string latest;                            // the name of the last observation
  std::string not_its_own;                       // what the rank cannot have reported itself

  bool ok() const { return finished && exit.ok() && not_its_own.empty(); }
};

// The frames that a rank sends. `events`: how many events the rank had recorded before.
nlohmann::json observation_frame(const std::string& name, const nlohmann::json& value,
                                 uint64_t events);
nlohmann::json finished_frame();

// Reads the frames that one rank has sent, and puts the steps between its observations from the
// events that it recorded.
RankReport read_report(const RankExit& exit, bool first_to_fail, const Channel& channel,
                       const std::vector<Event>& events = {}, const Crash* crash = nullptr);

// What went wrong in a run: first the cause, then where the other ranks were. Empty if nothing went
// wrong.
std::string describe_failure(const std::vector<RankReport>& ranks);

}  // namespace fsdp
