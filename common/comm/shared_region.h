#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// The memory that forked ranks share: a page for their exit messages, the ledger of their calls
// and, for each rank, an arena that the others can read. The mapping has no name: it is made before
// the fork and dies with its processes. Physical memory is taken as it is touched.
class SharedRegion {
 public:
  // Maps the region; to be called before the fork. Each arena is as large as the machine's memory
  // unless `arena_bytes` says less. Throws std::runtime_error when the mapping is refused.
  static std::shared_ptr<SharedRegion> create(int world_size, size_t arena_bytes = 0);
  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  int world_size() const { return world_size_; }
  void* ledger() const { return ledger_; }
  char* message(int rank) const;  // [kMessageBytes], zero-terminated
  static constexpr size_t kMessageBytes = 4096;

  // A path that every rank can open and no other process can name: where a c10d::FileStore meets.
  std::string rendezvous_path() const;

  // The allocator over `rank`'s arena, for that rank alone: what it knows of the arena lies in the
  // rank's own memory.
  c10::Allocator* allocator(int rank);

  // The address that all ranks can use for `data`, or 0 if it does not lie in an arena. The mapping
  // is at one address in every rank, so this is the pointer itself.
  uint64_t address_of(const void* data) const;

 private:
  SharedRegion() = default;
  int world_size_{};
  size_t total_bytes_{};
  size_t arena_bytes_{};
  char* base_{};
  void* ledger_{};
  char* arenas_{};
  int rendezvous_{-1};                                       // a memory file
  std::vector<std::unique_ptr<c10::Allocator>> allocators_;  // by rank; made when asked for
};

}  // namespace fsdp
