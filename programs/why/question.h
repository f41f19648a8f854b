#pragma once

#include <cstdint>
#include <string>

namespace fsdp {

// The first thing that was wrong in a test, from the file `wrong` of its recording
// (common/testing/wrong_observation.h).
struct Question {
  std::string folder;        // of the recording: .../T4_2_reduce.name_of_the_test/W2
  int run{}, rank{};         // which of its rank recordings
  std::string name;          // of the observation; "" if the rank failed
  std::string text;          // how it differs
  int64_t element{-1};       // index of the wrong element; -1: the observation is not a tensor
  int64_t right{-1};         // an element nearby that is not wrong; -1: none is known
  std::string place;         // "[3, 2] (p0[3, 2], which rank 1 owns)"
  std::string is, expected;  // of the element, or of a number
  int64_t call{-1};          // the number of the first wrong collective; -1: not a list of them
  std::string remark;        // what was expected there

  std::string test() const;  // "T4_2_reduce.name_of_the_test/W2"
  int task() const;          // 4
};

// Returns the question of the recording in `folder`, a folder DIR of ./fsdp check --record DIR or a
// folder in it: the one of the first failed test whose wrong observation is a tensor; if there is
// none, of the first other test. Throws std::runtime_error if no failed test has recorded one.
Question choose_question(const std::string& folder);

}  // namespace fsdp
