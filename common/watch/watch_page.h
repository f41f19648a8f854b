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
  // Identifies this layout of a WatchPage: change kMark when you change the struct.
  static constexpr uint32_t kMark = 0xf5d90004;
  static constexpr size_t kActions = 40'000;
  static constexpr size_t kFrames = 28;
  static constexpr size_t kSources = 4;

  // Something that the replayed rank did, such as a write to the watched address.
  struct Action {
    enum class Kind : uint32_t {
      none,
      write,
      spoil,
      issue,
      wait,
      observe,
      raise,
      read,
      line,
      call
    };
    Kind kind;
    uint32_t depth;   // number of used entries in `frames`
    uint64_t number;  // number of the action, from 1
    // Time of the action: how many operators the rank had called by then, and how many actions
    // other than `write`, `line` and `call` it had made. The number of writes and lines depends on
    // what ./fsdp why asks for, so only the time is equal in all runs of the rank.
    uint64_t time;
    // Return addresses of the functions that were running, as distances from the program's first
    // byte; the innermost function first.
    std::array<uint64_t, kFrames> frames;
    uint64_t address, bytes;  // address and size of the memory that was written, read or poisoned
    // For a `write`: the first bytes of the written element. For a `read`: the number that was read
    // from a tensor, as a double.
    uint64_t value;
    // For a `write`: the time at which the writing operator was called; equal to `time` if no
    // operator was running.
    uint64_t since;
    // For a `write`: the addresses of the elements from which the written value was computed;
    // unused entries are 0.
    std::array<uint64_t, kSources> sources;
    std::array<uint32_t, kSources> widths;  // number of bytes of each element at `sources`
    uint64_t arguments;  // for a `call`: hash of the operator's arguments (hash_of_arguments())
    // Name of the operator that writes or is called ("copy_"), of the observation, or of the
    // exception's type.
    char operation[64];
    // The collective that writes, is issued or is waited for; "" if there is none.
    char collective[96];
    bool copies;  // whether the operator that writes only copies values
  };

  uint32_t mark{kMark};
  // The question: the observation at which the rank ends ("": none, the rank runs to its end), the
  // index of the wrong element in it (-1: it is not a tensor), and the address to watch (0: none).
  char observation[256]{};
  int64_t element{-1};
  uint64_t address{};
  uint64_t width{};  // number of bytes to watch at the address: 1, 2, 4 or 8
  bool calls{};      // whether the operators that the program's code calls are actions too

  // The fields from here on are the answer, which the rank writes.
  bool arm{};       // whether the rank asks ./fsdp why to set the watchpoint
  bool observed{};  // whether the rank made the observation that the question names
  // Address of the wrong element of the observed tensor or, if the observation is a number, of the
  // element from which the number was read; and the number of bytes there. 0: not known.
  uint64_t observed_address{};
  uint64_t observed_width{};
  uint64_t program_start{};  // address of the program's first byte
  uint64_t throw_address{};  // address of __cxa_throw(), the function that throws exceptions
  uint64_t actions{};        // number of actions so far
  uint64_t time{};           // see Action::time
  // The last kActions actions. The action with the number n is at index n % kActions.
  std::array<Action, kActions> action;
};

}  // namespace fsdp
