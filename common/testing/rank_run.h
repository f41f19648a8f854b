#pragma once

#include <testing/observed_tensor.h>
#include <testing/story.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fsdp {

struct RankReport;

// The observations of the ranks of one run, and its failure.
class RankRun {
 public:
  // `recorded_as`: the number of the recording (./fsdp check --record) of this run; -1: the run was
  // not recorded.
  explicit RankRun(const std::vector<RankReport>& ranks, int recorded_as = -1);

  int world_size() const { return static_cast<int>(observations_.size()); }
  bool observed(int rank, const std::string& name) const;
  // Returns the names of all observations of rank `rank`, sorted.
  std::vector<std::string> names(int rank) const;

  // at() and tensor() return the value that rank `rank` observed as `name`. If the rank observed no
  // such value, they end the test as failed.
  const nlohmann::json& at(int rank, const std::string& name, const char* file = __builtin_FILE(),
                           int line = __builtin_LINE()) const;
  ObservedTensor tensor(int rank, const std::string& name, const char* file = __builtin_FILE(),
                        int line = __builtin_LINE()) const;

  // Describes what went wrong: first what each rank did, step by step, then how the rank that
  // caused the failure ended, then how the other ranks ended. Returns "" if nothing went wrong.
  const std::string& failure() const { return failure_; }
  // Returns the rank that caused the failure; -1 if no rank did.
  int failed_rank() const { return failed_rank_; }

  int recorded_as() const { return recorded_as_; }
  // If the observation `name` of rank `rank` is a list of the rank's collectives, returns the step
  // of the rank at which its collectives begin to differ from the `expected` ones; else nothing. (A
  // step is something that the rank did, such as issuing a collective.)
  std::optional<StoryPlace> place_of_call(int rank, const std::string& name,
                                          const nlohmann::json& expected) const;
  // Returns how many collectives rank `rank` issued before its step number `step`. (A step is
  // something that the rank did, such as issuing a collective.)
  int64_t calls_before(int rank, size_t step) const;

  // Returns what all ranks did, as numbered steps, up to the observation `name`. `expected`: the
  // expected value for each rank, or null if it is not known; it determines the marked step, at
  // which the collectives begin to differ from the expected ones. Only the first call of this
  // function returns the steps. Later calls return "", so that a test which fails twice prints the
  // steps once.
  std::string story(const std::string& name,
                    const std::vector<const nlohmann::json*>& expected = {}) const;

 private:
  // For each rank: name of an observation -> value of the observation.
  std::vector<std::map<std::string, nlohmann::json>> observations_;
  // For each rank: name of an observation -> number of the rank's steps up to the observation.
  std::vector<std::map<std::string, size_t>> observed_after_;
  // For each rank: its steps, which are what the rank did, as texts.
  std::vector<std::vector<std::string>> steps_;
  std::string failure_;
  int failed_rank_, recorded_as_;
  mutable bool told_{};
};

}  // namespace fsdp
