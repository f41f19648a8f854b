#pragma once

#include <base/torch.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fsdp {

// A target that is not asked for: no loss counts it. LibTorch's ignore_index.
inline constexpr int64_t kIgnoreIndex = -100;

// Token ids. Position t of `targets` is the token that follows position t of `inputs`.
struct Batch {
  at::Tensor inputs;   // [batch, seq] int64
  at::Tensor targets;  // [batch, seq] int64; kIgnoreIndex where a row asks for nothing

  // The rows of one of `parts` equal parts. Throws std::invalid_argument if the rows cannot be cut
  // into equal parts.
  Batch part(int index, int parts) const;

  // The same batch on `device`. The CPU does not wait for the copy.
  Batch to(c10::DeviceType device) const;
};

// The same of one tensor, which lies on the CPU or on `device`.
at::Tensor on_device(const at::Tensor& tensor, c10::DeviceType device);

// Where batches come from. A batch depends on the arguments only, so every rank and every mode
// draws the same global batch. batch() does not touch the default generator.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual Batch batch(int64_t step, int64_t rows, int64_t seq) const = 0;
  // Rows that no batch() draws: the same at every call, at most `rows`. Throws
  // std::invalid_argument if the dataset holds nothing out.
  virtual Batch held_out(int64_t rows, int64_t seq) const = 0;
};

// The published recipe: manual_seed(seed + 100 + step); tokens = randint(0, vocabulary,
// [rows, seq + 1]); inputs are all but the last column, targets all but the first.
std::shared_ptr<Dataset> make_published_dataset(int64_t vocabulary, uint64_t seed);

// Modular addition: a row is a, b, =, where = is the id `modulus`. It asks for one token: after =,
// (a + b) mod `modulus`. Of all pairs a, b, the seed chooses a fifth, rounded down, which is held
// out; a batch draws from the others. `seq` is always kModularSeq.
inline constexpr int64_t kModularSeq = 3;
std::shared_ptr<Dataset> make_modular_dataset(int64_t modulus, uint64_t seed);

// A pattern with noise: the seed draws kPatternPeriod ids below `vocabulary`. A row repeats them
// from a random place on; each token of it is replaced, with probability kPatternNoise, by a random
// id. What is held out are rows of another draw.
inline constexpr int64_t kPatternPeriod = 5;
inline constexpr double kPatternNoise = 0.05;
std::shared_ptr<Dataset> make_pattern_dataset(int64_t vocabulary, uint64_t seed);

// The bytes of text files, one after another. A folder stands for all text files in it and in its
// folders, in the order of their names; what is no plain file there is left out, as is what holds a
// NUL. Throws std::invalid_argument naming a path that is neither file nor folder, or holds no
// text. A process that reads before it forks reads for all ranks, which share the memory.
using Text = std::shared_ptr<const std::string>;
Text read_text_files(const std::vector<std::string>& paths);

// Ids one after another. Each row of a batch starts at a random place of those that are trained on,
// the first ones. Rows that are held out share no id, and lie as far apart as there are ids for.
class SequenceDataset : public Dataset {
 public:
  Batch batch(int64_t step, int64_t rows, int64_t seq) const override;
  Batch held_out(int64_t rows, int64_t seq) const override;

 protected:
  // unit: what messages count, as "tokens".
  SequenceDataset(const char* unit, uint64_t seed) : unit_(unit), seed_(seed) {}
  virtual int64_t size() const = 0;  // [ids]
  virtual int64_t trained() const { return size() - size() / 10; }
  virtual void read(int64_t begin, int64_t count, int64_t* into) const = 0;

 private:
  at::Tensor rows_from(const at::Tensor& starts, int64_t seq) const;
  void require_a_row(int64_t ids, int64_t seq, const std::string& what) const;

  const char* unit_;
  uint64_t seed_;
};

// The bytes of a text. The last tenth, rounded down, is held out.
class TextDataset : public SequenceDataset {
 public:
  TextDataset(Text text, uint64_t seed)
      : SequenceDataset("bytes of text", seed), text_(std::move(text)) {}
  int64_t size() const override { return static_cast<int64_t>(text_->size()); }
  double unigram_entropy() const;  // [nats per byte]

 private:
  void read(int64_t begin, int64_t count, int64_t* into) const override;

  Text text_;  // shared
};

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

// Markdown files and sources of the repository under `root`, so that there is always a text to
// train on. Without tasks/ and solutions/: a student's edits do not change it, else a run could not
// go on from its checkpoint. Throws std::invalid_argument if there are none.
std::vector<std::string> repository_text(const std::string& root);

}  // namespace fsdp
