#include <data/token_files.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

constexpr int64_t kHeader = 1024;  // [bytes] llm.c's
constexpr int32_t kOf16Bits = 20240520, kOf32Bits = 20240801;

class TokenDataset : public SequenceDataset {
 public:
  TokenDataset(const std::vector<std::string>& paths, int64_t vocabulary, uint64_t seed)
      : SequenceDataset("tokens", seed), vocabulary_(vocabulary) {
    for (const std::string& path : paths) {
      const TokenFile file(path);
      const at::Tensor all = at::from_file(path, false, file.begin + file.size, at::kShort);
      files_.push_back({path, all.slice(0, file.begin)});
    }
  }

 private:
  struct File {
    std::string path;
    at::Tensor ids;  // [n] of 16 bits without a sign, a mapping
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
    const int16_t* ids = file.ids.const_data_ptr<int16_t>() + first;
    for (int64_t i = 0; i < count; ++i) {
      into[i] = static_cast<uint16_t>(ids[i]);
      if (into[i] < vocabulary_) continue;
      throw std::invalid_argument(file.path + ": token " + std::to_string(first + i) + " is " +
                                  std::to_string(into[i]) + ", and the model has " +
                                  std::to_string(vocabulary_) +
                                  " ids; give --vocabulary of the tokenizer");
    }
  }

  int64_t vocabulary_;
  std::vector<File> files_;  // one or two
};

}  // namespace

TokenFile::TokenFile(std::string name) : path(std::move(name)), begin(0) {
  std::error_code unknown;
  const auto refuse = [&](const std::string& what) {
    throw std::invalid_argument(path + ": " + what);
  };
  if (!std::filesystem::is_regular_file(path, unknown)) refuse("is no plain file");
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path));
  std::array<int32_t, kHeader / 4> header{};
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(header.data()), kHeader);
  if (file.gcount() == 0) refuse("can't be read, or is empty");
  if (header[0] == kOf32Bits) refuse("has tokens of 32 bits; those of 16 are read");
  if (bytes % 2 != 0) refuse("has an odd number of bytes, so it has no tokens of 16 bits");
  if (header[0] == kOf16Bits && header[1] == 1) begin = kHeader / 2;
  size = bytes / 2 - begin;
  if (begin > 0 && (size < 0 || header[2] != size))
    refuse("says that it has " + std::to_string(header[2]) + " tokens, and has " +
           std::to_string(size));
}

std::shared_ptr<Dataset> make_token_dataset(const std::vector<std::string>& paths,
                                            int64_t vocabulary, uint64_t seed) {
  return std::make_shared<TokenDataset>(paths, vocabulary, seed);
}

}  // namespace fsdp
