#pragma once

#include <comm/launcher.h>
#include <testing/channel.h>
#include <trace/event.h>

#include <atomic>
#include <map>
#include <optional>

namespace fsdp {

// An assertion that failed in the body of a rank.
struct RankAssertion {
  std::string file;
  int line{};
  std::string text;
};

// Where a rank used memory that it must not: written by the rank when it is about to die of it.
struct Crash {
  std::atomic<bool> seen;
  std::atomic<uintptr_t> address;
};

// All that is known of one rank when a run is over.
struct RankReport {
  RankExit exit;
  bool first_to_fail{};  // its failure ended the other ranks
  bool finished{};       // it reached the end of the body
  std::map<std::string, nlohmann::json> observations;
  std::map<std::string, size_t> observed_after;  // how many of the steps
  std::vector<std::string> steps;                // what it did, in order
  std::optional<uintptr_t> crash_address;        // the memory whose use ended it
  std::string latest;                            // the name of the last observation
  std::vector<RankAssertion> assertions;         // that failed

  bool ok() const { return finished && exit.ok() && assertions.empty(); }
};

// The frames that a rank sends.
nlohmann::json observation_frame(const std::string& name, const nlohmann::json& value,
                                 uint64_t events);  // that the rank had recorded before
nlohmann::json assertion_frame(const RankAssertion& assertion);
nlohmann::json finished_frame();

RankReport read_report(const RankExit& exit, bool first_to_fail, const Channel& channel,
                       const std::vector<Event>& events = {}, const Crash* crash = nullptr);

// What went wrong in a run, the cause first, then where the other ranks were; empty if nothing did.
std::string describe_failure(const std::vector<RankReport>& ranks);

}  // namespace fsdp
