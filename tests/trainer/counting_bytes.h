#pragma once

#include <numeric>
#include <string>

// A text that counts up.
namespace fsdp {

inline std::string counting_bytes() {  // from 1 to 255
  std::string text(255, 0);
  std::iota(text.begin(), text.end(), '\1');
  return text;
}

}  // namespace fsdp
