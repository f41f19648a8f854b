#include <testing/judge/cases.h>

#include <cstdlib>

namespace fsdp {
namespace {

// FNV-1a: the same number on every machine.
uint64_t hash(const std::string& text) {
  uint64_t state = 14695981039346656037U;
  for (const char letter : text)
    state = (state ^ static_cast<unsigned char>(letter)) * 1099511628211U;
  return (state ^ (state >> 32)) & ((uint64_t{1} << 53) - 1);
}

}  // namespace

bool hidden_cases() {
  return std::getenv("FSDP_TEST_SEED") != nullptr;
}

uint64_t hidden_number(const std::string& what) {
  return hash(std::string(std::getenv("FSDP_TEST_SEED")) + ' ' + what);
}

}  // namespace fsdp
