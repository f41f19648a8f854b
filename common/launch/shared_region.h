#pragma once

#include <base/mapping.h>
#include <base/memory_file.h>
#include <c10/core/Allocator.h>

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

namespace fsdp {

// The memory that the ranks of a host share: a page for the exit message of each rank, the
// CallRings with their calls, a file through which they connect, and for each rank an arena that
// the other ranks can read. None of it has a name in a file system or can be opened by another
// user. It is freed when the processes that hold it end, however they end.
class SharedRegion {
 public:
  // Creates a region for ranks that the caller forks: they inherit it. Each arena has
  // `arena_bytes`; 0 means as much as the machine's memory (under valgrind 64 MiB). An arena is
  // smaller if there are not enough addresses (ulimit -v, many ranks). Throws std::runtime_error if
  // the system refuses the mapping.
  static std::shared_ptr<SharedRegion> create(int world_size, size_t arena_bytes = 0);

  // For ranks that a launcher has started: one process creates the region, and the other processes
  // open it by its name() while that process lives. The region has no arenas if ulimit -f does not
  // allow a file of their length. Throws std::runtime_error: create_for_started() if the system
  // refuses the memory; open() if the region can't be opened, or was created for another number of
  // ranks.
  static std::shared_ptr<SharedRegion> create_for_started(int world_size, size_t arena_bytes = 0);
  static std::shared_ptr<SharedRegion> open(int world_size, const std::string& name);
  std::string name() const;
  ~SharedRegion();

  int world_size() const { return world_size_; }
  void* call_rings() const;       // the memory for CallRings: CallRings::bytes() bytes
  char* message(int rank) const;  // [kMessageBytes] exit message of `rank`, zero-terminated
  static constexpr size_t kMessageBytes = 4096;
  // A process calls first_to_fail() when its rank has failed, or when it can't reach the store.
  // Returns true only for the first call among all processes that share this region.
  bool first_to_fail();
  bool one_has_failed() const;  // returns whether a process has called first_to_fail()

  // wait_at_most() reports that this rank waits for another one for at most `limit`. longest_wait()
  // returns the longest limit that any rank has reported; kDefaultTimeout if none was reported.
  void wait_at_most(std::chrono::milliseconds limit);
  std::chrono::milliseconds longest_wait() const;

  // Returns the path of a file for a c10d::FileStore, which every rank can open and no other
  // process can name.
  std::string rendezvous_path() const;

  bool has_arenas() const { return arenas_.has_value(); }

  // Returns the allocator of `rank`'s arena. Only that rank may use it, because the list of free
  // gaps is in the rank's own memory.
  c10::Allocator* allocator(int rank);

  // From now on, what `rank` allocates in its arena does not count as live. Call it for a rank on a
  // GPU, where only the GPU's bytes count.
  void stop_counting(int rank);

  // Returns the address with which all ranks find `data` through data_at(); 0 if `data` does not
  // lie in an arena.
  uint64_t address_of(const void* data) const;
  char* data_at(uint64_t address) const {
    return address == 0 ? nullptr : arenas_->base() + (address - 1);
  }

 private:
  struct Head;
  Head& head() const;
  static std::shared_ptr<SharedRegion> create_small(int world_size);
  void create_arenas(size_t arena_bytes);
  bool map_arenas(size_t bytes, bool or_throw);  // returns false if the system refuses the mapping
  SharedRegion(int world_size, OpenFile memory, OpenFile rendezvous);

  int world_size_;
  OpenFile memory_file_, rendezvous_;  // files in memory; rendezvous_ is for c10d::FileStore
  // File in memory with the arenas; -1: ranks are forked, or there are none.
  OpenFile arenas_file_{-1};
  // Maps memory_file_, which has a page with a Head, then the exit messages, then the call rings.
  Mapping memory_;
  std::optional<Mapping> arenas_;
  size_t arena_bytes_{};
  bool arenas_are_cut_{};  // whether the arenas have fewer bytes than were requested
  // Each rank's Arena, made at its first use.
  std::vector<std::unique_ptr<c10::Allocator>> allocators_;
};

}  // namespace fsdp
