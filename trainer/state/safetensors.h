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
// and may have an entry "__metadata__", which maps strings to strings.
namespace fsdp {

// Returns the name of `dtype` in the safetensors format, for example "F32". Throws
// std::invalid_argument if the format has no such dtype.
std::string safetensors_dtype(at::ScalarType dtype);

struct SafetensorsEntry {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> sizes;
};
using SafetensorsMetadata = std::map<std::string, std::string>;

// Writes tensors to a file one after another, so the file may be larger than the memory of the
// machine.
class SafetensorsWriter {
 public:
  // Makes the file and writes its header. Throws std::runtime_error, which names the file, if it
  // can't be written. Throws std::invalid_argument if the format does not have an entry's dtype or
  // name, or if a name occurs twice.
  SafetensorsWriter(const std::string& path, const std::vector<SafetensorsEntry>& entries,
                    const SafetensorsMetadata& metadata = {});

  // Writes the next elements, which must be contiguous and on the CPU. Write the tensors in the
  // order of the constructor's `entries`; a tensor may be written in several parts.
  void write(const at::Tensor& elements);
  // Writes `bytes`, the next elements. Runs no torch operator.
  void write(std::span<const std::byte> bytes);
  // Returns when the file is on the disk. Throws std::logic_error if fewer or more bytes were
  // written than the header has room for.
  void close();

  int64_t size() const { return file_.size(); }  // number of bytes written so far
  std::string sha256() const { return file_.sha256(); }

 private:
  FileWriter file_;
  int64_t missing_{};  // number of bytes of tensors that are not written yet
};

// Reads an untrusted file. The constructor checks the header's length against the size of the file
// before it allocates memory for the header, and every entry against the bytes of the tensors. So
// the constructor never takes memory out of proportion to the size of the file.
class SafetensorsReader {
 public:
  struct Entry {
    at::ScalarType dtype;
    std::vector<int64_t> sizes;
    int64_t numel;
    int64_t offset;  // offset of the tensor from the beginning of the file, in bytes
  };

  // Reads the header of the file `path`. Throws std::runtime_error "FILE: what is wrong" or "FILE:
  // tensor NAME: what is wrong" if the file can't be read, if the header or an entry is wrong, or
  // if the tensors do not fill the rest of the file without a gap.
  explicit SafetensorsReader(const std::string& path);

  const FileReader& file() const { return file_; }
  const std::map<std::string, Entry>& entries() const { return entries_; }
  const SafetensorsMetadata& metadata() const { return metadata_; }

  // Reads elements of a tensor of the file, from its element `begin` on, into `elements`, which
  // must be contiguous, on the CPU and of the entry's dtype. Throws std::out_of_range if the tensor
  // of the file has fewer elements or another dtype.
  void read(const Entry& entry, int64_t begin, const at::Tensor& elements) const;

 private:
  FileReader file_;
  std::map<std::string, Entry> entries_;
  SafetensorsMetadata metadata_;
};

}  // namespace fsdp
