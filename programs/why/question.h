#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp {

// Describes what ./fsdp why explains: the first thing that was wrong in a test, or that differs
// between two runs. It is read from the file `wrong` in the recording of the test
// (common/testing/wrong_observation.h) or of the second run (programs/diff.cpp).
struct Question {
  std::string folder;  // the folder of the recording: .../T4_2_reduce.name_of_the_test/W2
  // Name of the test, "T4_2_reduce.name_of_the_test/W2"; or "b (OPTIONS)", the second run.
  std::string test;
  bool compares_runs{};  // whether `test` is the second run of ./fsdp diff
  int run{}, rank{};     // number of the recorded run, and number of the wrong rank in this run
  std::string name;      // name of the observation; "" if the rank failed
  std::string text;      // how the observation differs from the expected one
  int64_t element{-1};   // index of the wrong element; -1: the observation is not a tensor
  int64_t right{-1};     // index of an element nearby that is not wrong; -1: none is known
  std::string place;     // place of the element: "[3, 2] (p0[3, 2], which rank 1 owns)"
  // The observed and the expected value of the wrong element, or of the observed number.
  std::string is, expected;
  // If two runs differ: values of the element that were equal in both runs before. These are the
  // gradients of the microbatches, and values of other tensors.
  std::vector<double> of_microbatches, others;
  // Number of the first wrong collective, from 0; -1: the observation is not a list of collectives.
  int64_t call{-1};
  // A text on what was expected at the wrong collective, such as another collective or none; "":
  // there is no such text.
  std::string remark;

  int task() const;  // number of the task in the test's name: 4; 0 if it names no task
  // Returns the names of the test and of the observation; for two runs only the observation's name,
  // because the words of their options do not name functions.
  std::string names() const;
};

// Returns the question of a failed test that is recorded in `folder`, which ./fsdp check --record
// has made, or in a folder in it. Chooses the first test, by name, whose wrong observation is a
// tensor; if there is none, the first failed test. Throws std::runtime_error if no failed test has
// recorded what was wrong.
Question choose_question(const std::string& folder);

}  // namespace fsdp
