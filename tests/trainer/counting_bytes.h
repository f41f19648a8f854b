#pragma once

#include <numeric>
#include <string>

// A text whose bytes are 1, 2, ..., 255.
namespace fsdp {

inline std::string counting_bytes() {
  std::string text(255, 0);
  std::iota(text.begin(), text.end(), '\1');
  return text;
}

}  // namespace fsdp
