#pragma once

#include <base/torch.h>
#include <state/files.h>

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

// The safetensors format: the length of the header (8 bytes, little-endian), the header (JSON, with
// spaces up to a multiple of 8 bytes), and the elements of the tensors in row-major order, one
// tensor after the other. The header has an entry for each tensor:
//   "NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
// and may have "__metadata__", which maps texts to texts.
namespace fsdp {

std::string safetensors_dtype(at::ScalarType dtype);  // "F32"; throws std::invalid_argument

struct SafetensorsEntry {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> sizes;
};
using SafetensorsMetadata = std::map<std::string, std::string>;

// Writes tensors to a file one after another, so the file may be larger than the memory.
class SafetensorsWriter {
 public:
  // Writes the header. Throws std::runtime_error, which names the file, and std::invalid_argument
  // for a dtype or a name that the format does not have, or for a name that occurs twice.
  SafetensorsWriter(const std::string& path, const std::vector<SafetensorsEntry>& entries,
                    const SafetensorsMetadata& metadata = {});

  // Writes the next elements, which are contiguous and on the CPU. Write the entries in the order
  // of the constructor's list; an entry may be written in several parts.
  void write(const at::Tensor& elements);
  void write(std::span<const std::byte> bytes);  // of the next elements; runs no torch operator
  // Returns when the file is on the disk. Throws std::logic_error if bytes are missing or too many.
  void close();

  int64_t size() const { return file_.size(); }  // [bytes]
  std::string sha256() const { return file_.sha256(); }

 private:
  FileWriter file_;
  int64_t missing_{};  // [bytes] of tensors still to write
};

// Reads an untrusted file. The constructor checks the header's length against the size of the file
// before it allocates memory for it, and every entry against the bytes that are left. So no file
// can make it take memory out of proportion to the file's own size.
class SafetensorsReader {
 public:
  struct Entry {
    at::ScalarType dtype;
    std::vector<int64_t> sizes;
    int64_t numel;
    int64_t offset;  // [bytes] in the file
  };

  // Throws std::runtime_error "FILE: what is wrong" or "FILE: tensor NAME: what is wrong" unless
  // the tensors fill the rest of the file without a gap.
  explicit SafetensorsReader(const std::string& path);

  const FileReader& file() const { return file_; }
  const std::map<std::string, Entry>& entries() const { return entries_; }
  const SafetensorsMetadata& metadata() const { return metadata_; }

  // Reads elements of the entry, from element `begin` on, into a contiguous tensor of the entry's
  // dtype on the CPU. Throws std::out_of_range if the entry has fewer elements or another dtype.
  void read(const Entry& entry, int64_t begin, const at::Tensor& elements) const;

 private:
  FileReader file_;
  std::map<std::string, Entry> entries_;
  SafetensorsMetadata metadata_;
};

}  // namespace fsdp
