#pragma once

#include <config/words.h>

#include <stdexcept>
#include <string>

namespace fsdp {

// Returns the mode of training that `word` names: "single", "ddp" or "fsdp".
inline Mode mode_of(const std::string& word) {
  for (const Mode mode : {Mode::single, Mode::ddp, Mode::fsdp})
    if (word == to_string(mode)) return mode;
  throw std::invalid_argument("no mode: " + word);
}

}  // namespace fsdp
