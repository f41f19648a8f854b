#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// The memory that ranks share: a page for their exit messages, the ledger of their calls, a file in
// which they meet and, when they are forked, for each rank an arena that the others can read. None
// of it has a name in a file system: it is gone with the processes that hold it, however they end.
// Physical memory is taken as it is touched.
class SharedRegion {
 public:
  // For ranks that the caller forks: they find it where they inherit it. Each arena is as large as
  // the machine's memory unless `arena_bytes` says less. Throws std::runtime_error when the mapping
  // is refused.
  static std::shared_ptr<SharedRegion> create(int world_size, size_t arena_bytes = 0);

  // For ranks that are started one by one: one process makes the region and tells the others its
  // name(), by which they open it while that process lives. Without arenas, which would have to lie
  // at one address in all of them. Both throw std::runtime_error.
  static std::shared_ptr<SharedRegion> create_without_arenas(int world_size);
  static std::shared_ptr<SharedRegion> open(int world_size, const std::string& name);
  std::string name() const;

  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  int world_size() const { return world_size_; }
  void* ledger() const { return ledger_; }
  char* message(int rank) const;  // [kMessageBytes], zero-terminated
  static constexpr size_t kMessageBytes = 4096;

  // True for the first call that any process makes.
  bool first_to_fail();

  // A path that every rank can open and no other process can name: where a c10d::FileStore meets.
  std::string rendezvous_path() const;

  bool has_arenas() const { return arenas_ != nullptr; }

  // The allocator over `rank`'s arena, for that rank alone: what it knows of the arena lies in the
  // rank's own memory.
  c10::Allocator* allocator(int rank);

  // The address that all ranks can use for `data`, or 0 if it does not lie in an arena. The mapping
  // is at one address in every rank, so this is the pointer itself.
  uint64_t address_of(const void* data) const;

 private:
  struct File {
    int descriptor{-1};
    ~File();
  };
  struct Mapping {
    char* base{};
    size_t bytes{};
    ~Mapping();
  };

  SharedRegion(int world_size, int memory, int rendezvous);
  void map_arenas(size_t arena_bytes);

  int world_size_;
  File memory_file_;  // a memory file, as is the next
  File rendezvous_;
  Mapping memory_;       // of memory_file_: a page for first_to_fail(), the messages, the ledger
  void* ledger_;         // view into memory_
  Mapping arenas_from_;  // up to a huge page more than the arenas
  char* arenas_{};       // view into arenas_from_; null: there are none
  size_t arena_bytes_{};
  std::vector<std::unique_ptr<c10::Allocator>> allocators_;  // by rank; made when asked for
};

}  // namespace fsdp
