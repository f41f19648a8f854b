#pragma once

#include <base/torch.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fsdp {

// A target of this value counts in no loss. It equals the default ignore_index of LibTorch's
// cross-entropy.
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

// Returns `tensor` on the device `device`. `tensor` must be on the CPU or already on `device`. The
// CPU does not wait for the copy.
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

// The random tokens of --recipe published. A batch has the tokens that randint(0, vocabulary,
// [rows, seq + 1]) returns after manual_seed(seed + 100 + step): all columns but the last one are
// the inputs, all but the first one are the targets.
std::shared_ptr<Dataset> make_published_dataset(int64_t vocabulary, uint64_t seed);

// A dataset of questions in modular addition.
// - A row is the three ids a, b and =, where = is the id `modulus`. Only the target of = counts in
//   the loss: (a + b) mod `modulus`.
// - The seed selects a fifth of all pairs a, b, rounded down, to be held out. Batches draw from the
//   other pairs.
// - `seq` must be kModularSeq.
inline constexpr int64_t kModularSeq = 3;
std::shared_ptr<Dataset> make_modular_dataset(int64_t modulus, uint64_t seed);

// A dataset that repeats a pattern, with noise. The seed draws kPatternPeriod ids below
// `vocabulary`. Each row of a batch repeats these ids from a random position on; each token is
// replaced, with probability kPatternNoise, by a random id. held_out() draws its rows in the same
// way, as the batch of a step that training does not have.
inline constexpr int64_t kPatternPeriod = 5;
inline constexpr double kPatternNoise = 0.05;
std::shared_ptr<Dataset> make_pattern_dataset(int64_t vocabulary, uint64_t seed);

// Returns the bytes of text files, one file after another.
// - A folder stands for all text files in it and in the folders below it, sorted by path. Files
//   that are not plain files or have a NUL byte are left out.
// - If a process calls read_text_files() before it forks ranks, the text is in memory only once,
//   for all these ranks.
// Throws: std::invalid_argument, which names the path, if a path is neither a plain file nor a
// folder, has no text, or can't be read.
using Text = std::shared_ptr<const std::string>;
Text read_text_files(const std::vector<std::string>& paths);

// A dataset that is one long sequence of ids. batch() draws each row from a random position in the
// first trained() ids. held_out() returns rows from the other ids: the rows do not overlap and are
// spread evenly.
class SequenceDataset : public Dataset {
 public:
  Batch batch(int64_t step, int64_t rows, int64_t seq) const override;
  Batch held_out(int64_t rows, int64_t seq) const override;

 protected:
  // `unit`: the word for ids in messages, such as "tokens".
  SequenceDataset(const char* unit, uint64_t seed) : unit_(unit), seed_(seed) {}
  // Returns the number of ids in the sequence: those to train on and those held out.
  virtual int64_t size() const = 0;
  // Returns the length of the part from which batches draw: this many ids, from the first one on.
  // The ids after them are held out.
  virtual int64_t trained() const { return size() - size() / 10; }
  // Copies `count` ids of the sequence to `into`, from the id at position `begin` on.
  virtual void read(int64_t begin, int64_t count, int64_t* into) const = 0;

 private:
  at::Tensor rows_from(const at::Tensor& starts, int64_t seq) const;
  void require_a_row(int64_t ids, int64_t seq, const std::string& what) const;

  const char* unit_;
  uint64_t seed_;
};

// The dataset of a text, whose ids are the bytes of the text. The last tenth, rounded down, is held
// out.
class TextDataset : public SequenceDataset {
 public:
  TextDataset(Text text, uint64_t seed)
      : SequenceDataset("bytes of text", seed), text_(std::move(text)) {}
  int64_t size() const override { return static_cast<int64_t>(text_->size()); }
  // Returns the entropy, in nats per byte, of the distribution of the text's single bytes.
  double unigram_entropy() const;

 private:
  void read(int64_t begin, int64_t count, int64_t* into) const override;

  Text text_;  // the whole text, shared with the caller
};

// A file of token ids, as nanoGPT writes it (only ids, of 16 bits) or as llm.c and ./fsdp tokenize
// write it (token_file_format.h; ids of 16 or 32 bits). Throws std::invalid_argument, which names
// the file, if it can't be read or is cut off.
struct TokenFile {
  explicit TokenFile(std::string path);
  std::string path;
  int64_t bytes_per_id;  // number of bytes of an id in the file: 2 or 4
  // Position of the first id in the file, counted in ids: 0 or, if the file has a header, the
  // number of ids that the space of the header could hold.
  int64_t begin;
  int64_t size;  // number of ids in the file
};

// Throws std::invalid_argument, which names the file, the place and the id, if one of the first
// `most` ids of a file of token ids is not below `vocabulary`, the number of ids of the model.
void check_token_ids(const std::string& path, int64_t vocabulary, int64_t most);
// Throws std::invalid_argument, which names the path, the place and the byte, if a byte of a text
// is not below `vocabulary`. `path`: as for read_text_files(), with the files of a folder one after
// another. Reads no file if every byte is below `vocabulary`.
void check_bytes_of_text(const std::string& path, int64_t vocabulary);

// A dataset that trains on the first file of `paths` and holds out the second one. If `paths` has
// only one file, its last tenth is held out. The files are mapped into memory, not read. batch()
// and held_out() throw std::invalid_argument for an id that is not below `vocabulary`.
std::shared_ptr<Dataset> make_token_dataset(const std::vector<std::string>& paths,
                                            int64_t vocabulary, uint64_t seed);

// Returns the paths of the .md, .h and .cpp files in some folders of the repository whose folder is
// `root`, so that there is always a text to train on. tasks/ and solutions/ are not among these
// folders: a student's edits there would change the text, and a run could not resume from its
// checkpoint. Throws std::invalid_argument if there are no such files.
std::vector<std::string> repository_text(const std::string& root);

}  // namespace fsdp
