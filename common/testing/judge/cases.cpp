#include <fcntl.h>
#include <testing/judge/cases.h>
#include <testing/judge/seed.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>

namespace fsdp {
namespace {

// Returns the FNV-1a hash of `text`, which is the same number on every machine.
uint64_t hash(const std::string& text, uint64_t state = 14695981039346656037U) {
  for (const char letter : text)
    state = (state ^ static_cast<unsigned char>(letter)) * 1099511628211U;
  return state;
}

std::string read_all(int file) {
  std::string text;
  char bytes[256];
  while (const ssize_t count = read(file, bytes, sizeof bytes)) {
    if (count > 0) text.append(bytes, static_cast<size_t>(count));
    if (count < 0 && errno != EINTR) break;
  }
  close(file);
  return text;
}

// Returns the hash of the seed of the hidden cases; nothing if there is no seed, so that the usual
// cases run.
std::optional<uint64_t> read_seed() {
  const char* seed = std::getenv("FSDP_TEST_SEED");
  if (const char* file = std::getenv(seed_file::kVariable)) {
    const std::string text = read_all(static_cast<int>(std::strtol(file, nullptr, 10)));
    if (text.empty()) return {};
    return hash(text + ' ');
  }
  if (seed == nullptr) return {};
  return hash(std::string(seed) + ' ');
}

const std::optional<uint64_t>& seed() {
  static const std::optional<uint64_t> read = read_seed();
  return read;
}

// read_seed_first() reads the pipe with the seed of the hidden cases. It runs before main() and
// before the constructors of static objects. So no code of a task can have read the pipe, and no
// rank has been forked yet: if one rank read the pipe, the others would find it empty.
[[gnu::constructor(101)]] void read_seed_first() {
  seed();
}

}  // namespace

int seed_file::make() {
  const char* seed = std::getenv("FSDP_TEST_SEED");
  const std::string text = seed == nullptr ? "" : seed;
  int ends[2];
  if (pipe(ends) != 0) return -1;
  // O_NONBLOCK: if the seed is longer than the pipe's buffer, write() keeps only its beginning and
  // does not wait. Every program of the ranks gets this beginning, so all of them have the same
  // cases.
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  if (write(ends[1], text.data(), text.size()) < 0) return -1;
  close(ends[1]);
  const int kept = fcntl(ends[0], F_DUPFD, kFirstDescriptor);
  close(ends[0]);
  return kept;
}

bool hidden_cases() {
  return seed().has_value();
}

uint64_t hidden_number(const std::string& what) {
  const uint64_t state = hash(what, *seed());
  return (state ^ (state >> 32)) & ((uint64_t{1} << 53) - 1);
}

}  // namespace fsdp
