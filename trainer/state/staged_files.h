#pragma once

#include <state/checkpoint_folder.h>
#include <state/checkpoint_tensors.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

namespace fsdp {

// Copies of the tensors of safetensors files, which stay in memory until the files are written. The
// copies are not counted as live bytes.
class StagedFiles {
 public:
  // Returns a sink that copies the tensors that it receives into this object. The sink must not
  // outlive this object.
  std::unique_ptr<TensorSink> open(const TensorFile& file);

  // Writes the files into `folder`. Returns the files when they are on the disk or, soon after a
  // request to stop, an empty list. Frees the copy of each tensor when it is written. Runs no torch
  // operator, so any thread may call it. Throws as SafetensorsWriter does.
  std::vector<SavedFile> write(const std::string& folder, const std::stop_token& stop);

  // Returns the bytes of the copies that are not written to a file yet. Any thread may call it.
  int64_t bytes_left() const { return bytes_left_; }

 private:
  class Sink;
  struct Copy {
    std::unique_ptr<std::byte[]> data;
    size_t bytes;
  };
  struct File {
    TensorFile header;
    std::vector<Copy> tensors;
  };

  std::vector<File> files_;
  std::atomic<int64_t> bytes_left_{};
};

}  // namespace fsdp
