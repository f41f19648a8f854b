#include <comm/arena.h>
#include <comm/ledger.h>
#include <comm/shared_region.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <utility>

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

size_t memory_bytes(int world_size) {
  return (1 + world_size) * SharedRegion::kMessageBytes + Ledger::bytes(world_size);
}

int new_file(const char* name, size_t bytes) {
  const int file = memfd_create(name, MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) refused("memfd_create");
  return file;
}

char* map(size_t bytes, int flags, int file) {
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | flags, file, 0);
  if (base == MAP_FAILED) refused("cannot map " + std::to_string(bytes) + " bytes (see ulimit -v)");
  return static_cast<char*>(base);
}

}  // namespace

SharedRegion::File::~File() {
  if (descriptor >= 0) close(descriptor);
}

SharedRegion::Mapping::~Mapping() {
  if (base) munmap(base, bytes);
}

SharedRegion::SharedRegion(int world_size, int memory, int rendezvous)
    : world_size_(world_size),
      memory_file_{memory},
      rendezvous_{rendezvous},
      memory_{map(memory_bytes(world_size), 0, memory), memory_bytes(world_size)},
      ledger_(memory_.base + (1 + world_size) * kMessageBytes),
      allocators_(static_cast<size_t>(world_size)) {}

std::shared_ptr<SharedRegion> SharedRegion::create_without_arenas(int world_size) {
  const int memory = new_file("fsdp_ranks", memory_bytes(world_size));
  return std::shared_ptr<SharedRegion>(
      new SharedRegion(world_size, memory, new_file("fsdp_rendezvous", 0)));
}

std::shared_ptr<SharedRegion> SharedRegion::create(int world_size, size_t arena_bytes) {
  auto region = create_without_arenas(world_size);
  region->map_arenas(round_up(arena_bytes ? arena_bytes : physical_memory(), kHugePage));
  return region;
}

std::shared_ptr<SharedRegion> SharedRegion::open(int world_size, const std::string& name) {
  std::istringstream words(name);
  std::string memory, rendezvous;
  words >> memory >> rendezvous;
  File files[2];
  files[0].descriptor = ::open(memory.c_str(), O_RDWR | O_CLOEXEC);
  files[1].descriptor = ::open(rendezvous.c_str(), O_RDWR | O_CLOEXEC);
  if (files[0].descriptor < 0 || files[1].descriptor < 0) {
    refused("cannot open " + name + ", which rank 0 has named");
  }
  struct stat status {};
  fstat(files[0].descriptor, &status);
  if (static_cast<size_t>(status.st_size) != memory_bytes(world_size)) {
    throw std::runtime_error("shared memory between ranks: " + memory + " has " +
                             std::to_string(status.st_size) + " bytes, not " +
                             std::to_string(memory_bytes(world_size)) +
                             ": do all ranks run the same program?");
  }
  return std::shared_ptr<SharedRegion>(new SharedRegion(
      world_size, std::exchange(files[0].descriptor, -1), std::exchange(files[1].descriptor, -1)));
}

std::string SharedRegion::name() const {
  const std::string folder = "/proc/" + std::to_string(getpid()) + "/fd/";
  return folder + std::to_string(memory_file_.descriptor) + ' ' + folder +
         std::to_string(rendezvous_.descriptor);
}

SharedRegion::~SharedRegion() = default;

void SharedRegion::map_arenas(size_t arena_bytes) {
  arena_bytes_ = arena_bytes;
  arenas_from_.bytes = world_size_ * arena_bytes + kHugePage;
  // No swap space is reserved: the arenas together may be larger than the machine's memory.
  arenas_from_.base = map(arenas_from_.bytes, MAP_ANONYMOUS | MAP_NORESERVE, -1);
  const size_t address = reinterpret_cast<size_t>(arenas_from_.base);
  arenas_ = reinterpret_cast<char*>(round_up(address, kHugePage));
}

char* SharedRegion::message(int rank) const {
  return memory_.base + (1 + rank) * kMessageBytes;
}

bool SharedRegion::first_to_fail() {
  return reinterpret_cast<std::atomic<uint32_t>*>(memory_.base)->exchange(1) == 0;
}

std::string SharedRegion::rendezvous_path() const {
  return "/proc/self/fd/" + std::to_string(rendezvous_.descriptor);
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
