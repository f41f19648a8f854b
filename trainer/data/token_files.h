#pragma once

#include <data/dataset.h>

#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// A file of token ids of 16 bits, as nanoGPT writes it (ids alone) and llm.c (256 numbers of 32
// bits before them: 20240520, 1, the number of ids, and zeros). Throws std::invalid_argument, which
// names the file, if it can't be read, is cut off, or has ids of 32 bits.
struct TokenFile {
  explicit TokenFile(std::string path);
  std::string path;
  int64_t begin;  // [ids] of the first one
  int64_t size;   // [ids]
};

// Trains on the first file, and holds out the second. Of a single file the last tenth is held out.
// The files are mapped into memory, not read. batch() and held_out() throw std::invalid_argument
// for an id that is not below `vocabulary`.
std::shared_ptr<Dataset> make_token_dataset(const std::vector<std::string>& paths,
                                            int64_t vocabulary, uint64_t seed);

}  // namespace fsdp
