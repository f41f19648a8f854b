#pragma once

#include <data/batch.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// Where batches come from. Batch `step` depends on the arguments alone: every rank and every mode
// draws the same global batch. The default generator is left as it was.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual Batch batch(int64_t step, int64_t rows, int64_t seq) const = 0;
  virtual int64_t vocabulary() const = 0;  // ids are below it
};

// The published recipe: manual_seed(seed + 100 + step); tokens = randint(0, vocabulary,
// [rows, seq + 1]); inputs are all but the last column, targets all but the first.
std::shared_ptr<Dataset> make_published_dataset(int64_t vocabulary, uint64_t seed);

// Bytes of text files (a folder stands for the regular files in it that are text, recursively, in
// order of name). A batch's rows start at random places. Throws std::invalid_argument naming the
// path that does not exist or that holds no text.
class TextDataset : public Dataset {
 public:
  TextDataset(const std::vector<std::string>& paths, uint64_t seed);
  Batch batch(int64_t step, int64_t rows, int64_t seq) const override;
  int64_t vocabulary() const override { return 256; }
  int64_t size() const { return static_cast<int64_t>(text_.size()); }  // [bytes]
  double unigram_entropy() const;                                      // [nats per byte]

 private:
  std::string text_;
  uint64_t seed_;
};

// The repository's own Markdown files and sources under `root`: there is always real text.
std::vector<std::string> repository_text(const std::string& root);

}  // namespace fsdp
