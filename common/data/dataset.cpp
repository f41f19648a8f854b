#include <ATen/CPUGeneratorImpl.h>
#include <data/dataset.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace fsdp {
namespace {

namespace fs = std::filesystem;

// A generator that draws what the default one would after torch::manual_seed(seed + 100 + step).
at::Generator generator_of_step(uint64_t seed, int64_t step) {
  return at::make_generator<at::CPUGeneratorImpl>(seed + 100 + static_cast<uint64_t>(step));
}

// tokens: [rows, seq + 1]
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

  int64_t vocabulary() const override { return vocabulary_; }

 private:
  int64_t vocabulary_;
  uint64_t seed_;
};

// The regular files below `folder`, in order of name.
std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Empty if the file is not text: text holds no NUL.
std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::invalid_argument("text '" + path.string() + "' can't be read");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  return text.find('\0') == std::string::npos ? text : std::string();
}

std::string read_all(const fs::path& path) {
  if (!fs::exists(path)) throw std::invalid_argument("text '" + path.string() + "' does not exist");
  std::string text;
  for (const auto& file : fs::is_directory(path) ? files_below(path) : std::vector{path}) {
    text += read_text(file);
  }
  if (text.empty()) throw std::invalid_argument("'" + path.string() + "' holds no text");
  return text;
}

}  // namespace

std::shared_ptr<Dataset> make_published_dataset(int64_t vocabulary, uint64_t seed) {
  return std::make_shared<PublishedDataset>(vocabulary, seed);
}

TextDataset::TextDataset(const std::vector<std::string>& paths, uint64_t seed) : seed_(seed) {
  for (const auto& path : paths)
    text_ += read_all(path);
}

Batch TextDataset::batch(int64_t step, int64_t rows, int64_t seq) const {
  if (size() <= seq) {
    throw std::invalid_argument("a row takes " + std::to_string(seq + 1) +
                                " bytes of text, there are only " + std::to_string(size()));
  }
  const auto starts =
      torch::randint(0, size() - seq, {rows}, generator_of_step(seed_, step), torch::kLong);
  auto tokens = torch::empty({rows, seq + 1}, torch::kLong);
  auto* token = tokens.mutable_data_ptr<int64_t>();
  for (int64_t row = 0; row < rows; ++row) {
    const auto begin = text_.begin() + starts.const_data_ptr<int64_t>()[row];
    token = std::transform(begin, begin + seq + 1, token,
                           [](char byte) { return static_cast<unsigned char>(byte); });
  }
  return shifted(tokens);
}

double TextDataset::unigram_entropy() const {
  std::array<int64_t, 256> counts{};
  for (const char byte : text_)
    ++counts[static_cast<unsigned char>(byte)];
  double entropy = 0;
  for (const int64_t count : counts) {
    const double p = static_cast<double>(count) / static_cast<double>(size());
    if (count > 0) entropy -= p * std::log(p);
  }
  return entropy;
}

std::vector<std::string> repository_text(const std::string& root) {
  std::vector<std::string> paths;
  for (const char* part : {"README.md", "common", "programs", "solutions", "tasks", "tests"}) {
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
