#include <comm/call_rings.h>
#include <comm/default_timeout.h>
#include <fcntl.h>
#include <launch/arena.h>
#include <launch/shared_region.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kLeastArena = size_t{64} << 20;

size_t round_up(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Returns the most bytes that an arena may need: the machine's memory. Under valgrind returns 64
// MiB, because its search for leaks reads arenas to their end.
size_t physical_memory() {
  const char* loaded = std::getenv("LD_PRELOAD");
  if (loaded != nullptr && std::strstr(loaded, "vgpreload") != nullptr) return kLeastArena;
  return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// Returns how many bytes this process may still map under ulimit -v.
size_t addresses_left() {
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  if (limit.rlim_cur == RLIM_INFINITY) return std::numeric_limits<size_t>::max();
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const size_t mapped = pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return limit.rlim_cur - std::min<size_t>(mapped, limit.rlim_cur);
}

const char* const kPurpose = "shared memory between ranks";

[[noreturn]] void refused(const std::string& what) {
  throw std::runtime_error(std::string(kPurpose) + ": " + what + ": " + std::strerror(errno));
}

size_t memory_bytes(int world_size) {
  return (1 + world_size) * SharedRegion::kMessageBytes + CallRings::bytes(world_size);
}

void set_length(const OpenFile& file, size_t bytes) {
  if (ftruncate(file.descriptor, static_cast<off_t>(bytes)) != 0) refused("ftruncate");
}

OpenFile new_file(const char* name, size_t bytes) {
  OpenFile file = memory_file(name);
  if (fchmod(file.descriptor, S_IRUSR | S_IWUSR) != 0) refused("fchmod");
  set_length(file, bytes);
  return file;
}

OpenFile existing_file(const std::string& path) {
  OpenFile file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (file.descriptor < 0)
    refused("cannot open " + path + ", the memory that the lowest rank of this host has created");
  return file;
}

size_t length_of(const OpenFile& file) {
  struct stat status {};
  fstat(file.descriptor, &status);
  return static_cast<size_t>(status.st_size);
}

}  // namespace

// The beginning of the memory that all ranks of a host share. The memory is zeroed, so all fields
// begin as 0.
struct SharedRegion::Head {
  std::atomic<uint32_t> failed;
  // The longest time limit that a rank has reported to wait_at_most() [ms]; 0: none was reported.
  std::atomic<int64_t> longest_wait;
};

SharedRegion::SharedRegion(int world_size, OpenFile memory, OpenFile rendezvous)
    : world_size_(world_size),
      memory_file_(std::move(memory)),
      rendezvous_(std::move(rendezvous)),
      memory_(kPurpose, memory_bytes(world_size), memory_file_),
      allocators_(static_cast<size_t>(world_size)) {}

// Creates a region without arenas.
std::shared_ptr<SharedRegion> SharedRegion::create_small(int world_size) {
  OpenFile memory = new_file("fsdp_ranks", memory_bytes(world_size));
  return std::shared_ptr<SharedRegion>(
      new SharedRegion(world_size, std::move(memory), new_file("fsdp_rendezvous", 0)));
}

std::shared_ptr<SharedRegion> SharedRegion::create(int world_size, size_t arena_bytes) {
  auto region = create_small(world_size);
  region->create_arenas(arena_bytes);
  return region;
}

std::shared_ptr<SharedRegion> SharedRegion::create_for_started(int world_size, size_t arena_bytes) {
  auto region = create_small(world_size);
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const auto wanted = arena_bytes ? arena_bytes : physical_memory();
  if (limit.rlim_cur / static_cast<size_t>(world_size) < round_up(wanted, kHugePage)) return region;
  region->arenas_file_ = new_file("fsdp_arenas", 0);
  region->create_arenas(arena_bytes);
  return region;
}

void SharedRegion::create_arenas(size_t arena_bytes) {
  const size_t wanted = round_up(arena_bytes ? arena_bytes : physical_memory(), kHugePage);
  // All arenas together get half of the free addresses, because the process needs the other half
  // for everything else.
  const size_t share = addresses_left() / 2 / world_size_;
  size_t bytes = std::min(wanted, std::max(share / kHugePage * kHugePage, kLeastArena));
  // The kernel does not report how large a mapping it would allow, so the arenas are halved until
  // it maps them.
  while (!map_arenas(bytes, bytes / 2 < kLeastArena))
    bytes = round_up(bytes / 2, kHugePage);
  arenas_are_cut_ = bytes < wanted;
  if (arenas_file_.descriptor >= 0) set_length(arenas_file_, arenas_->bytes());
}

// Maps the arenas of all ranks, each of `bytes`. Each arena begins at a huge page. If the system
// refuses the mapping, returns false, or throws if `or_throw` is true.
bool SharedRegion::map_arenas(size_t bytes, bool or_throw) {
  try {
    arenas_.emplace(kPurpose, world_size_ * bytes, arenas_file_, kHugePage);
  } catch (const std::runtime_error&) {
    if (or_throw) throw;
    return false;
  }
  arena_bytes_ = bytes;
  return true;
}

std::shared_ptr<SharedRegion> SharedRegion::open(int world_size, const std::string& name) {
  std::istringstream words(name);
  std::string memory, rendezvous, arenas;
  words >> memory >> rendezvous >> arenas;
  OpenFile file = existing_file(memory);
  if (length_of(file) != memory_bytes(world_size)) {
    throw std::runtime_error(std::string(kPurpose) + ": " + memory + " has " +
                             std::to_string(length_of(file)) + " bytes, not " +
                             std::to_string(memory_bytes(world_size)) +
                             ": do all ranks run the same program?");
  }
  std::shared_ptr<SharedRegion> region(
      new SharedRegion(world_size, std::move(file), existing_file(rendezvous)));
  if (arenas.empty()) return region;
  region->arenas_file_ = existing_file(arenas);
  region->map_arenas(length_of(region->arenas_file_) / world_size, true);
  return region;
}

std::string SharedRegion::name() const {
  std::string name;
  for (const OpenFile* file : {&memory_file_, &rendezvous_, &arenas_file_})
    if (file->descriptor >= 0)
      name += "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file->descriptor) + ' ';
  return name;
}

SharedRegion::~SharedRegion() = default;

void* SharedRegion::call_rings() const {
  return message(world_size_);
}

char* SharedRegion::message(int rank) const {
  return memory_.base() + (1 + rank) * kMessageBytes;
}

SharedRegion::Head& SharedRegion::head() const {
  return *reinterpret_cast<Head*>(memory_.base());
}

bool SharedRegion::first_to_fail() {
  return head().failed.exchange(1) == 0;
}

bool SharedRegion::one_has_failed() const {
  return head().failed != 0;
}

void SharedRegion::wait_at_most(std::chrono::milliseconds limit) {
  int64_t longest = head().longest_wait;
  while (longest < limit.count() &&
         !head().longest_wait.compare_exchange_weak(longest, limit.count())) {
  }
}

std::chrono::milliseconds SharedRegion::longest_wait() const {
  const std::chrono::milliseconds longest{head().longest_wait};
  return longest.count() > 0 ? longest : kDefaultTimeout;
}

std::string SharedRegion::rendezvous_path() const {
  return "/proc/self/fd/" + std::to_string(rendezvous_.descriptor);
}

c10::Allocator* SharedRegion::allocator(int rank) {
  auto& allocator = allocators_[static_cast<size_t>(rank)];
  if (!allocator) {
    allocator = std::make_unique<Arena>(
        arenas_->base() + rank * arena_bytes_, arena_bytes_,
        arenas_are_cut_ ? "; there are no more addresses for it, see ulimit -v" : "");
  }
  return allocator.get();
}

void SharedRegion::stop_counting(int rank) {
  dynamic_cast<Arena&>(*allocator(rank)).stop_counting();
}

uint64_t SharedRegion::address_of(const void* data) const {
  if (!arenas_) return 0;
  const auto* byte = static_cast<const char*>(data);
  const char* first = arenas_->base();
  const bool inside = byte >= first && byte < first + arenas_->bytes();
  return inside ? 1 + static_cast<uint64_t>(byte - first) : 0;
}

}  // namespace fsdp
