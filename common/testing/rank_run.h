#pragma once

#include <testing/observed_tensor.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fsdp {

struct RankReport;

// What the ranks of one run observed, and what went wrong.
class RankRun {
 public:
  explicit RankRun(const std::vector<RankReport>& ranks);

  int world_size() const { return static_cast<int>(observations_.size()); }
  bool observed(int rank, const std::string& name) const;
  std::vector<std::string> names(int rank) const;  // of all observations, sorted

  // The value that rank `rank` observed as `name`. If it observed no such value, the test ends as
  // failed.
  const nlohmann::json& at(int rank, const std::string& name, const char* file = __builtin_FILE(),
                           int line = __builtin_LINE()) const;
  ObservedTensor tensor(int rank, const std::string& name, const char* file = __builtin_FILE(),
                        int line = __builtin_LINE()) const;

  // What went wrong: first the cause, then where the other ranks were. Empty if nothing went wrong.
  const std::string& failure() const { return failure_; }

  // The steps of all ranks up to the observation `name`, numbered. `expected`: by rank, what it
  // should be, or null where that is not known; it shows the step at which calls begin to differ.
  // Only the first call returns the steps; later calls return "", so that a test which fails twice
  // prints them once.
  std::string story(const std::string& name,
                    const std::vector<const nlohmann::json*>& expected = {}) const;

 private:
  std::vector<std::map<std::string, nlohmann::json>> observations_;  // [world_size]
  std::vector<std::map<std::string, size_t>> observed_after_;        // [world_size] in steps
  std::vector<std::vector<std::string>> steps_;                      // [world_size]
  std::string failure_;
  mutable bool told_{};
};

}  // namespace fsdp
