#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace fsdp {

// Memory that ./fsdp why (programs/why) and the rank that it replays both map: ./fsdp why writes a
// question into it, and the rank writes the answer. The environment variable FSDP_WATCH has the
// number of the memory's descriptor. The rank runs several times with equal addresses; each run
// answers one question.
struct WatchPage {
  static constexpr uint32_t kMark = 0xf5d90002;  // change this number when the struct changes
  static constexpr size_t kActions = 40'000;
  static constexpr size_t kFrames = 28;
  static constexpr size_t kSources = 4;

  // Something that the rank did.
  struct Action {
    enum class Kind : uint32_t { none, write, spoil, issue, wait, observe, raise, read, line };
    Kind kind;
    uint32_t depth;  // number of used entries in `frames`
    uint64_t time;   // number of the action, from 1; calls of operators are counted, too
    // Return addresses, counted from the program's start; innermost first.
    std::array<uint64_t, kFrames> frames;
    uint64_t address, bytes;  // address and size of the memory that was written, read or poisoned
    uint64_t value;           // `write`: first bytes of the element; `read`: the number as a double
    // `write`: the number at which the operator that writes began; equal to `time` if the writing
    // code is no operator.
    uint64_t since;
    std::array<uint64_t, kSources> sources;  // the addresses from which a `write` took its value
    std::array<uint32_t, kSources> widths;   // number of bytes of each element at `sources`
    char operation[64];   // the operator that writes ("copy_"), the observation or the exception
    char collective[96];  // the collective that writes, is issued or is waited for
    bool copies;          // whether the operator only copies values
  };

  uint32_t mark{kMark};
  // The question: the observation at which the rank ends ("": none, the rank runs to its end), the
  // index of the wrong element in it (-1: it is not a tensor), and the address to watch (0: none).
  char observation[256]{};
  int64_t element{-1};
  uint64_t address{};
  uint64_t width{};  // number of bytes to watch at the address: 1, 2, 4 or 8

  // The fields from here on are the answer, which the rank writes.
  bool arm{};                   // whether the rank asks ./fsdp why to set the watchpoint
  bool observed{};              // whether the rank made the observation
  uint64_t observed_address{};  // the element's address in the tensor that the test observed
  uint64_t observed_width{};
  uint64_t program_start{};             // address of the program's first byte
  uint64_t throw_address{};             // address of the function that throws exceptions
  uint64_t actions{};                   // number of actions and calls of operators so far
  std::array<Action, kActions> action;  // the last actions; number n is at [n % kActions]
};

}  // namespace fsdp
