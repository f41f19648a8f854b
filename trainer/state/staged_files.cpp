#include <state/staged_files.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

namespace fsdp {

class StagedFiles::Sink : public TensorSink {
 public:
  Sink(StagedFiles& staged, const TensorFile& header) : staged_(staged), file_{header, {}} {}
  void write(const at::Tensor& elements) override {
    const size_t bytes = elements.nbytes();
    Copy copy = memory_for(bytes);
    if (bytes > 0) std::memcpy(copy.data.get(), elements.const_data_ptr(), bytes);
    staged_.bytes_left_ += static_cast<int64_t>(bytes);
    file_.tensors.push_back(std::move(copy));
  }
  void close() override { staged_.files_.push_back(std::move(file_)); }

 private:
  static Copy memory_for(size_t bytes) {
    try {
      return {std::make_unique_for_overwrite<std::byte[]>(bytes), bytes};
    } catch (const std::bad_alloc&) {
      throw std::runtime_error("the copy of a tensor of " + std::to_string(bytes) +
                               " bytes does not fit into memory; save without a copy, and wait");
    }
  }

  StagedFiles& staged_;
  File file_;
};

std::unique_ptr<TensorSink> StagedFiles::open(const TensorFile& file) {
  return std::make_unique<Sink>(*this, file);
}

std::vector<SavedFile> StagedFiles::write(const std::string& folder, const std::stop_token& stop) {
  // The most bytes that are written between two checks of `stop`.
  constexpr size_t kMost = size_t{1} << 20;
  std::vector<SavedFile> written;
  for (File& file : files_) {
    SafetensorsWriter writer(folder + '/' + file.header.name, file.header.entries,
                             file.header.metadata);
    for (Copy& copy : file.tensors) {
      std::span<const std::byte> rest(copy.data.get(), copy.bytes);
      while (!rest.empty()) {
        if (stop.stop_requested()) return {};
        const auto next = rest.first(std::min(rest.size(), kMost));
        writer.write(next);
        bytes_left_ -= static_cast<int64_t>(next.size());
        rest = rest.subspan(next.size());
      }
      copy.data.reset();
    }
    writer.close();
    written.push_back({file.header.name, writer.size(), writer.sha256()});
  }
  return written;
}

}  // namespace fsdp
