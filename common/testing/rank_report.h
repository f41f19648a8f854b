#pragma once

#include <comm/launcher.h>
#include <testing/channel.h>

#include <map>

namespace fsdp {

// An assertion that failed in the body of a rank.
struct RankAssertion {
  std::string file;
  int line{};
  std::string text;
};

// All that is known of one rank when a run is over.
struct RankReport {
  RankExit exit;
  bool first_to_fail{};  // its failure ended the other ranks
  bool finished{};       // it reached the end of the body
  std::map<std::string, nlohmann::json> observations;
  std::string latest;                     // the name of the last observation
  std::vector<RankAssertion> assertions;  // that failed

  bool ok() const { return finished && exit.ok() && assertions.empty(); }
};

// The frames that a rank sends.
nlohmann::json observation_frame(const std::string& name, const nlohmann::json& value);
nlohmann::json assertion_frame(const RankAssertion& assertion);
nlohmann::json finished_frame();

RankReport read_report(const RankExit& exit, bool first_to_fail, const Channel& channel);

// What went wrong in a run, the cause first, then where the other ranks were; empty if nothing did.
std::string describe_failure(const std::vector<RankReport>& ranks);

}  // namespace fsdp
