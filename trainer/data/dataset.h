#pragma once

#include <base/torch.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fsdp {

// A target that no loss counts: LibTorch's ignore_index.
inline constexpr int64_t kIgnoreIndex = -100;

// Token ids. Position t of `targets` is the token that follows position t of `inputs`.
struct Batch {
  at::Tensor inputs;   // [batch, seq] int64
  at::Tensor targets;  // [batch, seq] int64; kIgnoreIndex for tokens that need no prediction

  // Returns a microbatch: the rows of part `index` of `parts` equal parts. Throws
  // std::invalid_argument if `parts` does not divide the rows, or if there is no part `index`.
  Batch part(int index, int parts) const;

  // Returns this batch on `device`. The CPU does not wait for the copy.
  Batch to(c10::DeviceType device) const;
};

// Returns `tensor` on `device`. `tensor` must be on the CPU or on `device`. The CPU does not wait
// for the copy.
at::Tensor on_device(const at::Tensor& tensor, c10::DeviceType device);

// A source of batches. A batch depends only on the dataset and the arguments, so every rank and
// every mode draws the same global batch. batch() does not use the default generator.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual Batch batch(int64_t step, int64_t rows, int64_t seq) const = 0;
  // Returns at most `rows` rows that no batch() draws, the same rows in every call. Throws
  // std::invalid_argument if the dataset holds out no rows.
  virtual Batch held_out(int64_t rows, int64_t seq) const = 0;
};

// The random tokens of the published recipe. A batch has the tokens that randint(0, vocabulary,
// [rows, seq + 1]) returns after manual_seed(seed + 100 + step): all columns but the last one are
// the inputs, all but the first one are the targets.
std::shared_ptr<Dataset> make_published_dataset(int64_t vocabulary, uint64_t seed);

// Modular addition.
// - A row is a, b, =, where = is the id `modulus`. Only the target of = counts: (a + b) mod
//   `modulus`.
// - The seed selects a fifth of all pairs a, b, rounded down, to be held out. Batches draw from the
//   other pairs.
// - `seq` must be kModularSeq.
inline constexpr int64_t kModularSeq = 3;
std::shared_ptr<Dataset> make_modular_dataset(int64_t modulus, uint64_t seed);

// A pattern with noise. The seed draws kPatternPeriod ids below `vocabulary`. A row repeats them
// from a random position on; each token is replaced, with probability kPatternNoise, by a random
// id. The rows that are held out come from another draw.
inline constexpr int64_t kPatternPeriod = 5;
inline constexpr double kPatternNoise = 0.05;
std::shared_ptr<Dataset> make_pattern_dataset(int64_t vocabulary, uint64_t seed);

// Returns the bytes of text files, one file after another.
// - A folder stands for all text files in it and in the folders below it, sorted by path. Files
//   that are not plain files or have a NUL byte are left out.
// - If a process calls this before it forks, its ranks share the memory of the text.
// Throws: std::invalid_argument, which names the path, if a path is neither a plain file nor a
// folder, has no text, or can't be read.
using Text = std::shared_ptr<const std::string>;
Text read_text_files(const std::vector<std::string>& paths);

// A sequence of ids. Each row of a batch starts at a random position of the first trained() ids.
// The rows that are held out have no id in common and are spread evenly over the other ids.
class SequenceDataset : public Dataset {
 public:
  Batch batch(int64_t step, int64_t rows, int64_t seq) const override;
  Batch held_out(int64_t rows, int64_t seq) const override;

 protected:
  // `unit`: the word for ids in messages, such as "tokens".
  SequenceDataset(const char* unit, uint64_t seed) : unit_(unit), seed_(seed) {}
  virtual int64_t size() const = 0;  // [ids]
  // Returns the number of ids, from the first one on, from which batches draw. The ids after them
  // are held out.
  virtual int64_t trained() const { return size() - size() / 10; }
  // Writes the ids from `begin` to `begin + count` to `into`.
  virtual void read(int64_t begin, int64_t count, int64_t* into) const = 0;

 private:
  at::Tensor rows_from(const at::Tensor& starts, int64_t seq) const;
  void require_a_row(int64_t ids, int64_t seq, const std::string& what) const;

  const char* unit_;
  uint64_t seed_;
};

// The bytes of a text as ids. The last tenth, rounded down, is held out.
class TextDataset : public SequenceDataset {
 public:
  TextDataset(Text text, uint64_t seed)
      : SequenceDataset("bytes of text", seed), text_(std::move(text)) {}
  int64_t size() const override { return static_cast<int64_t>(text_->size()); }
  double unigram_entropy() const;  // [nats per byte]

 private:
  void read(int64_t begin, int64_t count, int64_t* into) const override;

  Text text_;  // shared with the caller
};

// A file of token ids, as nanoGPT writes it (only ids, of 16 bits) or as llm.c and ./fsdp tokenize
// write it (token_file_format.h; ids of 16 or 32 bits). Throws std::invalid_argument, which names
// the file, if it can't be read or is cut off.
struct TokenFile {
  explicit TokenFile(std::string path);
  std::string path;
  int64_t bytes_per_id;  // 2 or 4
  int64_t begin;         // [ids] position of the first id: 0, or the size of the header
  int64_t size;          // [ids]
};

// A dataset that trains on the first file and holds out the second one. If there is one file, its
// last tenth is held out. The files are mapped into memory, not read. batch() and held_out() throw
// std::invalid_argument for an id that is not below `vocabulary`.
std::shared_ptr<Dataset> make_token_dataset(const std::vector<std::string>& paths,
                                            int64_t vocabulary, uint64_t seed);

// Returns the .md, .h and .cpp files of some folders of the repository under `root`, so that there
// is always a text to train on. tasks/ and solutions/ are not among them: a student's edits there
// would change the text, and a run could not resume from its checkpoint. Throws
// std::invalid_argument if there are no such files.
std::vector<std::string> repository_text(const std::string& root);

}  // namespace fsdp
