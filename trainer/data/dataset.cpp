#include <ATen/CPUGeneratorImpl.h>
#include <data/dataset.h>
#include <data/token_file_format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

namespace fsdp {
namespace {

namespace fs = std::filesystem;

// Returns a generator that draws what the default generator draws after torch::manual_seed(seed +
// 100 + step).
at::Generator generator_of_step(uint64_t seed, int64_t step) {
  return at::make_generator<at::CPUGeneratorImpl>(seed + 100 + static_cast<uint64_t>(step));
}

// Returns all but the last column of `tokens` [rows, seq + 1] as inputs and all but the first as
// targets.
Batch shifted(const at::Tensor& tokens) {
  const int64_t seq = tokens.size(1) - 1;
  return {tokens.narrow(1, 0, seq), tokens.narrow(1, 1, seq)};
}

class PublishedDataset : public Dataset {
 public:
  PublishedDataset(int64_t vocabulary, uint64_t seed) : vocabulary_(vocabulary), seed_(seed) {}

  Batch batch(int64_t step, int64_t rows, int64_t seq) const override {
    return shifted(torch::randint(0, vocabulary_, {rows, seq + 1}, generator_of_step(seed_, step),
                                  torch::kLong));
  }

  Batch held_out(int64_t, int64_t) const override {
    throw std::invalid_argument("nothing is held out: random tokens can't be learned");
  }

 private:
  int64_t vocabulary_;
  uint64_t seed_;
};

class ModularDataset : public Dataset {
 public:
  ModularDataset(int64_t modulus, uint64_t seed) : modulus_(modulus), seed_(seed) {
    const int64_t pairs = modulus * modulus;
    const at::Tensor order =
        torch::randperm(pairs, at::make_generator<at::CPUGeneratorImpl>(seed), torch::kLong);
    held_out_ = order.slice(0, 0, pairs / 5);
    trained_ = order.slice(0, pairs / 5);
  }

  Batch batch(int64_t step, int64_t rows, int64_t seq) const override {
    const auto drawn =
        torch::randint(0, trained_.numel(), {rows}, generator_of_step(seed_, step), torch::kLong);
    return questions(trained_.index_select(0, drawn), seq);
  }

  Batch held_out(int64_t rows, int64_t seq) const override {
    return questions(held_out_.slice(0, 0, rows), seq);
  }

 private:
  // Returns the batch for some pairs a, b: each row asks for (a + b) mod modulus_. `pairs`: [rows],
  // each element is a * modulus_ + b.
  Batch questions(const at::Tensor& pairs, int64_t seq) const {
    if (seq != kModularSeq) throw std::invalid_argument("a row of modular addition has 3 tokens");
    const at::Tensor a = pairs.div(modulus_, "floor"), b = pairs.remainder(modulus_);
    const at::Tensor nothing = at::full_like(a, kIgnoreIndex);
    return {torch::stack({a, b, at::full_like(a, modulus_)}, 1),
            torch::stack({nothing, nothing, (a + b).remainder(modulus_)}, 1)};
  }

  int64_t modulus_;
  uint64_t seed_;
  // [n] int64, in memory of this object: the pairs from which batches draw, and the pairs that are
  // held out. The pair of a and b is stored as a * modulus_ + b. Each pair is in exactly one of the
  // two tensors.
  at::Tensor trained_, held_out_;
};

class PatternDataset : public Dataset {
 public:
  PatternDataset(int64_t vocabulary, uint64_t seed)
      : vocabulary_(vocabulary),
        seed_(seed),
        pattern_(torch::randint(0, vocabulary, {kPatternPeriod},
                                at::make_generator<at::CPUGeneratorImpl>(seed), torch::kLong)) {}

  Batch batch(int64_t step, int64_t rows, int64_t seq) const override {
    const at::Generator generator = generator_of_step(seed_, step);
    const auto first = torch::randint(0, kPatternPeriod, {rows, 1}, generator, torch::kLong);
    const auto places = (first + torch::arange(seq + 1)).remainder(kPatternPeriod);
    const auto noisy = torch::rand({rows, seq + 1}, generator) < kPatternNoise;
    const auto noise = torch::randint(0, vocabulary_, {rows, seq + 1}, generator, torch::kLong);
    return shifted(torch::where(noisy, noise, pattern_.index({places})));
  }

  // Returns as the held-out rows the batch of step -1, which no training step uses.
  Batch held_out(int64_t rows, int64_t seq) const override { return batch(-1, rows, seq); }

 private:
  int64_t vocabulary_;
  uint64_t seed_;
  at::Tensor pattern_;  // [kPatternPeriod] int64, in memory of this object
};

[[noreturn]] void refuse_id(const std::string& path, int64_t place, int64_t id,
                            int64_t vocabulary) {
  throw std::invalid_argument(path + ": token " + std::to_string(place) + " is " +
                              std::to_string(id) + ", and the model has " +
                              std::to_string(vocabulary) +
                              " ids; make the ids with the tokenizer of the model or, for a new "
                              "model, give --vocabulary");
}

// Reads at most the first `most` ids of `file`, which are numbers of the type Id, and throws
// std::invalid_argument if one of them is not below `vocabulary`.
template <typename Id>
void check_ids_as(const TokenFile& file, int64_t vocabulary, int64_t most) {
  constexpr int64_t kPiece = 1 << 18;  // ids that are read at a time
  std::ifstream bytes(file.path, std::ios::binary);
  bytes.seekg(file.begin * static_cast<int64_t>(sizeof(Id)));
  std::vector<Id> ids;
  for (int64_t begin = 0; begin < std::min(most, file.size); begin += kPiece) {
    ids.resize(static_cast<size_t>(std::min({kPiece, most - begin, file.size - begin})));
    bytes.read(reinterpret_cast<char*>(ids.data()),
               static_cast<std::streamsize>(ids.size() * sizeof(Id)));
    if (!bytes) throw std::invalid_argument(file.path + ": can't be read to its end");
    if (*std::max_element(ids.begin(), ids.end()) < vocabulary) continue;
    const auto wrong = std::ranges::find_if(ids, [&](Id id) { return id >= vocabulary; });
    refuse_id(file.path, begin + (wrong - ids.begin()), *wrong, vocabulary);
  }
}

class TokenDataset : public SequenceDataset {
 public:
  TokenDataset(const std::vector<std::string>& paths, int64_t vocabulary, uint64_t seed)
      : SequenceDataset("tokens", seed), vocabulary_(vocabulary) {
    for (const std::string& path : paths) {
      const TokenFile file(path);
      const at::Tensor all = at::from_file(path, false, file.begin + file.size,
                                           file.bytes_per_id == 2 ? at::kShort : at::kInt);
      files_.push_back({path, all.slice(0, file.begin)});
    }
  }

 private:
  struct File {
    std::string path;
    at::Tensor ids;  // [n] unsigned ids, stored as int16 or int32, mapped from the file

    int64_t id(int64_t index) const {
      if (ids.scalar_type() == at::kInt)
        return static_cast<uint32_t>(ids.const_data_ptr<int32_t>()[index]);
      return static_cast<uint16_t>(ids.const_data_ptr<int16_t>()[index]);
    }
  };

  int64_t size() const override {
    return files_.front().ids.numel() + (files_.size() > 1 ? files_.back().ids.numel() : 0);
  }
  int64_t trained() const override {
    return files_.size() > 1 ? files_.front().ids.numel() : SequenceDataset::trained();
  }
  void read(int64_t begin, int64_t count, int64_t* into) const override {
    const bool of_second = files_.size() > 1 && begin >= trained();
    const File& file = files_[of_second ? 1 : 0];
    const int64_t first = of_second ? begin - trained() : begin;
    for (int64_t i = 0; i < count; ++i) {
      into[i] = file.id(first + i);
      if (into[i] < vocabulary_) continue;
      refuse_id(file.path, first + i, into[i], vocabulary_);
    }
  }

  int64_t vocabulary_;
  // The file whose ids are trained on and, if given, the file whose ids are held out.
  std::vector<File> files_;
};

// Returns the plain files in `folder` and in the folders below it, sorted by path. Symbolic links
// to plain files count as plain files. Does not follow symbolic links to folders.
std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    std::error_code unknown;
    if (entry.is_regular_file(unknown)) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

// Appends the content of the file `path` to `text`. Appends nothing if the file has a NUL byte,
// because then it is not text.
void add_text(const fs::path& path, std::string& text) {
  constexpr size_t kChunk = size_t{1} << 20;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::invalid_argument("text '" + path.string() + "' can't be read");
  const size_t before = text.size();
  for (size_t end = before; file;) {
    text.resize(end + kChunk);
    file.read(text.data() + end, kChunk);
    const auto count = static_cast<size_t>(file.gcount());
    text.resize(end + count);
    if (text.find('\0', end) != std::string::npos) return text.resize(before);
    end += count;
  }
}

// Returns whether the file `path` is text and not token ids. `begin`: the first bytes of the file.
// - A file with a NUL byte is not text. Nearly every file of token ids has one.
// - Of the other files, one with a name such as book.txt is text.
// - A file with another name is text if at least nine of ten bytes are printable ASCII characters
//   or white space. In a file of 16-bit ids, two printable characters would be an id above 8000,
//   but the common tokens have lower ids.
bool is_text(const fs::path& path, std::string_view begin) {
  if (begin.find('\0') != std::string_view::npos) return false;
  for (const char* end : {".txt", ".md", ".json", ".jsonl", ".csv", ".html", ".xml", ".tex"})
    if (path.extension() == end) return true;
  const auto ascii = std::ranges::count_if(
      begin, [](unsigned char c) { return (c >= ' ' && c < 127) || (c >= '\t' && c <= '\r'); });
  return 10 * ascii >= 9 * std::ssize(begin);
}

void add_all(const fs::path& path, std::string& text) {
  std::error_code unknown;
  const size_t before = text.size();
  if (fs::is_directory(path, unknown)) {
    for (const auto& file : files_below(path))
      add_text(file, text);
  } else if (fs::is_regular_file(path, unknown)) {
    add_text(path, text);
    if (text.size() == before && fs::file_size(path, unknown) > 0)
      throw std::invalid_argument("'" + path.string() +
                                  "' is not text, because it has a byte of 0; a file of token ids "
                                  "is given with --tokens");
  } else {
    const bool exists = fs::exists(path, unknown);
    throw std::invalid_argument(
        "text '" + path.string() +
        (exists ? "' is neither a plain file nor a folder" : "' does not exist"));
  }
  if (text.size() == before) throw std::invalid_argument("'" + path.string() + "' holds no text");
}

}  // namespace

Batch Batch::part(int index, int parts) const {
  const int64_t rows = inputs.size(0);
  if (parts < 1 || index < 0 || index >= parts || rows % parts != 0) {
    throw std::invalid_argument("a batch of " + std::to_string(rows) + " rows has no microbatch " +
                                std::to_string(index) + " of " + std::to_string(parts) +
                                ": the global batch must be a multiple of the number of "
                                "microbatches");
  }
  const int64_t share = rows / parts;
  return {inputs.narrow(0, index * share, share), targets.narrow(0, index * share, share)};
}

Batch Batch::to(c10::DeviceType device) const {
  return {on_device(inputs, device), on_device(targets, device)};
}

// Copies the tensor to pinned memory, and from there to the GPU. The CPU does not wait for the GPU,
// because the allocator of pinned memory does not reuse this memory before the GPU has read it.
at::Tensor on_device(const at::Tensor& tensor, c10::DeviceType device) {
  if (tensor.device().type() == device) return tensor;
  return tensor.contiguous().pin_memory().to(device, tensor.scalar_type(), /*non_blocking=*/true);
}

std::shared_ptr<Dataset> make_published_dataset(int64_t vocabulary, uint64_t seed) {
  return std::make_shared<PublishedDataset>(vocabulary, seed);
}

std::shared_ptr<Dataset> make_modular_dataset(int64_t modulus, uint64_t seed) {
  return std::make_shared<ModularDataset>(modulus, seed);
}

std::shared_ptr<Dataset> make_pattern_dataset(int64_t vocabulary, uint64_t seed) {
  return std::make_shared<PatternDataset>(vocabulary, seed);
}

void SequenceDataset::require_a_row(int64_t ids, int64_t seq, const std::string& what) const {
  if (ids > seq) return;
  throw std::invalid_argument("a row takes " + std::to_string(seq + 1) + ' ' + unit_ +
                              ", there are only " + std::to_string(ids) + ' ' + what);
}

// Returns one row for each of `starts`: the seq + 1 ids that begin there. Shape: [number of starts,
// seq + 1].
at::Tensor SequenceDataset::rows_from(const at::Tensor& starts, int64_t seq) const {
  auto rows = torch::empty({starts.numel(), seq + 1}, torch::kLong);
  for (int64_t row = 0; row < starts.numel(); ++row)
    read(starts.const_data_ptr<int64_t>()[row], seq + 1,
         rows.mutable_data_ptr<int64_t>() + row * (seq + 1));
  return rows;
}

Batch SequenceDataset::batch(int64_t step, int64_t rows, int64_t seq) const {
  require_a_row(trained(), seq, "to train on");
  const auto starts =
      torch::randint(0, trained() - seq, {rows}, generator_of_step(seed_, step), torch::kLong);
  return shifted(rows_from(starts, seq));
}

Batch SequenceDataset::held_out(int64_t rows, int64_t seq) const {
  const int64_t ids = size() - trained();
  require_a_row(ids, seq, "held out");
  const int64_t count = std::min(rows, ids / (seq + 1));
  return shifted(rows_from(trained() + torch::arange(count, torch::kLong) * (ids / count), seq));
}

Text read_text_files(const std::vector<std::string>& paths) {
  std::string text;
  for (const auto& path : paths)
    add_all(path, text);
  text.shrink_to_fit();
  return std::make_shared<const std::string>(std::move(text));
}

void TextDataset::read(int64_t begin, int64_t count, int64_t* into) const {
  std::transform(text_->begin() + begin, text_->begin() + begin + count, into,
                 [](char byte) { return static_cast<unsigned char>(byte); });
}

double TextDataset::unigram_entropy() const {
  std::array<int64_t, 256> counts{};
  for (const char byte : *text_)
    ++counts[static_cast<unsigned char>(byte)];
  double entropy = 0;
  for (const int64_t count : counts) {
    const double p = static_cast<double>(count) / static_cast<double>(size());
    if (count > 0) entropy -= p * std::log(p);
  }
  return entropy;
}

TokenFile::TokenFile(std::string name)
    : path(std::move(name)), bytes_per_id(sizeof(uint16_t)), begin(0) {
  std::error_code unknown;
  const auto refuse = [&](const std::string& what) {
    throw std::invalid_argument(path + ": " + what);
  };
  const auto kind = std::filesystem::status(path, unknown).type();
  if (kind == std::filesystem::file_type::not_found) refuse("no such file");
  if (kind != std::filesystem::file_type::regular)
    refuse(unknown ? unknown.message() : "is not a plain file");
  for (const char* end : {".safetensors", ".npy", ".parquet", ".arrow", ".gz", ".zip", ".pt"})
    if (std::filesystem::path(path).extension() == end)
      refuse("is a " + std::string(end) +
             " file, not plain token ids, which ./fsdp tokenize and the scripts of nanoGPT and "
             "llm.c write");
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path));
  TokenFileHeader header{};
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(header.data()), sizeof(header));
  if (file.gcount() == 0) refuse("can't be read, or is empty");
  if (is_text(path,
              {reinterpret_cast<const char*>(header.data()), static_cast<size_t>(file.gcount())}))
    refuse(
        "is text, not token ids; train on its bytes with --text, or make ids of it with ./fsdp "
        "tokenize");
  const bool wide = header[0] == kOf32Bits.magic;
  if (wide && header[1] != kOf32Bits.version)
    refuse("has a header of version " + std::to_string(header[1]) + " for tokens of 32 bits, and " +
           "only version " + std::to_string(kOf32Bits.version) + " can be read");
  if (wide) bytes_per_id = sizeof(uint32_t);
  if (bytes % bytes_per_id != 0)
    refuse(wide ? "has a header for tokens of 32 bits, and a number of bytes that 4 does not divide"
                : "has an odd number of bytes, so its tokens are not of 16 bits");
  if (wide || (header[0] == kOf16Bits.magic && header[1] == kOf16Bits.version))
    begin = static_cast<int64_t>(sizeof(header)) / bytes_per_id;
  size = bytes / bytes_per_id - begin;
  if (begin > 0 && (size < 0 || header[2] != size))
    refuse("has a header for " + std::to_string(header[2]) + " tokens, but the file has " +
           std::to_string(size));
}

void check_token_ids(const std::string& path, int64_t vocabulary, int64_t most) {
  const TokenFile file(path);
  file.bytes_per_id == sizeof(uint16_t) ? check_ids_as<uint16_t>(file, vocabulary, most)
                                        : check_ids_as<uint32_t>(file, vocabulary, most);
}

void check_bytes_of_text(const std::string& path, int64_t vocabulary) {
  if (vocabulary > std::numeric_limits<unsigned char>::max()) return;
  const Text text = read_text_files({path});
  const auto wrong = std::ranges::find_if(
      *text, [&](char byte) { return static_cast<unsigned char>(byte) >= vocabulary; });
  if (wrong == text->end()) return;
  throw std::invalid_argument(path + ": byte " + std::to_string(wrong - text->begin()) + " is " +
                              std::to_string(static_cast<unsigned char>(*wrong)) +
                              ", and the model has " + std::to_string(vocabulary) +
                              " ids; give --vocabulary 256 or more");
}

std::shared_ptr<Dataset> make_token_dataset(const std::vector<std::string>& paths,
                                            int64_t vocabulary, uint64_t seed) {
  return std::make_shared<TokenDataset>(paths, vocabulary, seed);
}

std::vector<std::string> repository_text(const std::string& root) {
  std::vector<std::string> paths;
  for (const char* part : {"README.md", "COURSE.md", "docs", "common", "programs", "tests"}) {
    const fs::path path = fs::path(root) / part;
    if (!fs::exists(path)) continue;
    for (const auto& file : fs::is_directory(path) ? files_below(path) : std::vector{path}) {
      const auto kind = file.extension();
      if (kind == ".md" || kind == ".h" || kind == ".cpp") paths.push_back(file.string());
    }
  }
  if (paths.empty()) {
    throw std::invalid_argument("'" + root + "' is not the repository: no .md, .h or .cpp found");
  }
  return paths;
}

}  // namespace fsdp
