#pragma once

#include <cstdint>
#include <string>

// Trainings to which something happens at a random moment, as it does to those of users.
namespace fsdp {

struct Injection {
  int world{2};
  std::string backend{"shm"}, mode{"fsdp"};
  std::string what{"SIGKILL"};  // a signal, or "exit": a rank leaves by exit(0)
  int rank{};                   // to which that happens; -1: the process that waits for the ranks
  int steps{};                  // after so many, or, with 0, as soon as all ranks are there,
  int microseconds{};           // and so much later
};

Injection draw(uint64_t seed);
std::string text(const Injection& injection);

// Trains, and does that. What is wrong with how the run ended; empty if nothing is: it ends in
// time, with the right status; the story names the rank; no process and no file is left that was
// not asked for, and those that were are as before, or whole.
std::string wrong_end(const Injection& injection);

}  // namespace fsdp
