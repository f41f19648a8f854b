#pragma once

#include <base/mapping.h>
#include <base/memory_file.h>
#include <c10/core/Allocator.h>

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

namespace fsdp {

// The memory that the ranks of a host share: a page for their exit messages, the rings of their
// calls, a file in which they meet and for each rank an arena that the others can read. None of it
// has a name in a file system, or can be opened by another user: it is gone with the processes that
// hold it, however they end.
class SharedRegion {
 public:
  // For ranks that the caller forks: they inherit it. Each arena is as large as the machine's
  // memory (under valgrind 64 MiB) unless `arena_bytes` says less, or there are not so many
  // addresses (ulimit -v, many ranks): then it is smaller. Throws std::runtime_error if the mapping
  // is refused.
  static std::shared_ptr<SharedRegion> create(int world_size, size_t arena_bytes = 0);

  // For ranks that are started one by one: one process makes the region and gives the others its
  // name(), by which they open it while that process lives. It has no arenas where ulimit -f does
  // not let a file be as long. All throw std::runtime_error.
  static std::shared_ptr<SharedRegion> create_for_started(int world_size, size_t arena_bytes = 0);
  static std::shared_ptr<SharedRegion> open(int world_size, const std::string& name);
  std::string name() const;
  ~SharedRegion();

  int world_size() const { return world_size_; }
  void* call_rings() const;       // CallRings::bytes() of memory
  char* message(int rank) const;  // [kMessageBytes], zero-terminated
  static constexpr size_t kMessageBytes = 4096;
  bool first_to_fail();         // true for the first call that any process makes
  bool one_has_failed() const;  // whether there was one

  // The longest time limit that a rank has given, for every wait for another rank.
  void wait_at_most(std::chrono::milliseconds limit);
  std::chrono::milliseconds longest_wait() const;  // kDefaultTimeout if none has given one

  // A path that every rank can open and no other process can name: where a c10d::FileStore meets.
  std::string rendezvous_path() const;

  bool has_arenas() const { return arenas_.has_value(); }

  // The allocator over `rank`'s arena. Only that rank may use it: it keeps its books in the rank's
  // own memory.
  c10::Allocator* allocator(int rank);

  // From now on what that rank allocates in its arena is no live memory. For ranks on a GPU, whose
  // live bytes are the GPU's.
  void stop_counting(int rank);

  // By which all ranks find `data` with data_at(), or 0 if it does not lie in an arena.
  uint64_t address_of(const void* data) const;
  char* data_at(uint64_t address) const {
    return address == 0 ? nullptr : arenas_->base() + (address - 1);
  }

 private:
  struct Head;
  Head& head() const;
  static std::shared_ptr<SharedRegion> create_small(int world_size);
  void create_arenas(size_t arena_bytes);
  bool map_arenas(size_t bytes, bool or_throw);  // returns whether the system has let it
  SharedRegion(int world_size, OpenFile memory, OpenFile rendezvous);

  int world_size_;
  OpenFile memory_file_, rendezvous_;  // memory files
  OpenFile arenas_file_{-1};           // likewise; -1: the ranks are forked
  Mapping memory_;  // of memory_file_: a page with a Head, the messages, the call rings
  std::optional<Mapping> arenas_;
  size_t arena_bytes_{};
  bool arenas_are_cut_{};                                    // to fewer bytes than were wanted
  std::vector<std::unique_ptr<c10::Allocator>> allocators_;  // by rank; made when asked for
};

}  // namespace fsdp
