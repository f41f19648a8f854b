#pragma once

#include <numeric>
#include <string>

// A text whose bytes count up.
namespace fsdp {

inline std::string counting_bytes() {  // 1, 2, ..., 255
  std::string text(255, 0);
  std::iota(text.begin(), text.end(), '\1');
  return text;
}

}  // namespace fsdp
