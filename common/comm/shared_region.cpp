#include <comm/arena.h>
#include <comm/ledger.h>
#include <comm/shared_region.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace fsdp {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

size_t round_up(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

size_t physical_memory() {
  return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

[[noreturn]] void refused(const std::string& what) {
  throw std::runtime_error("shared memory between ranks: " + what + ": " + std::strerror(errno));
}

}  // namespace

std::shared_ptr<SharedRegion> SharedRegion::create(int world_size, size_t arena_bytes) {
  std::shared_ptr<SharedRegion> region(new SharedRegion);
  region->world_size_ = world_size;
  region->allocators_.resize(static_cast<size_t>(world_size));
  region->arena_bytes_ = round_up(arena_bytes ? arena_bytes : physical_memory(), kHugePage);
  size_t messages = world_size * kMessageBytes;
  size_t before = messages + Ledger::bytes(world_size) + kHugePage;
  region->total_bytes_ = before + world_size * region->arena_bytes_;

  // No swap space is reserved: the arenas together may be larger than the machine's memory.
  void* base = mmap(nullptr, region->total_bytes_, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    refused("cannot map " + std::to_string(region->total_bytes_) + " bytes (see ulimit -v)");
  }
  region->base_ = static_cast<char*>(base);
  region->ledger_ = region->base_ + messages;
  size_t address = reinterpret_cast<size_t>(region->ledger_) + Ledger::bytes(world_size);
  region->arenas_ = reinterpret_cast<char*>(round_up(address, kHugePage));

  region->rendezvous_ = memfd_create("fsdp_rendezvous", MFD_CLOEXEC);
  if (region->rendezvous_ < 0) refused("memfd_create");
  return region;
}

SharedRegion::~SharedRegion() {
  if (rendezvous_ >= 0) close(rendezvous_);
  if (base_) munmap(base_, total_bytes_);
}

char* SharedRegion::message(int rank) const {
  return base_ + rank * kMessageBytes;
}

std::string SharedRegion::rendezvous_path() const {
  return "/proc/self/fd/" + std::to_string(rendezvous_);
}

c10::Allocator* SharedRegion::allocator(int rank) {
  auto& allocator = allocators_[static_cast<size_t>(rank)];
  if (!allocator) allocator = std::make_unique<Arena>(arenas_ + rank * arena_bytes_, arena_bytes_);
  return allocator.get();
}

uint64_t SharedRegion::address_of(const void* data) const {
  auto* byte = static_cast<const char*>(data);
  bool inside = byte >= arenas_ && byte < arenas_ + world_size_ * arena_bytes_;
  return inside ? reinterpret_cast<uint64_t>(data) : 0;
}

}  // namespace fsdp
