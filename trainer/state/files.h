#pragma once

#include <digest/sha256.h>

#include <cstdint>
#include <string>
#include <string_view>

// Reads and writes files of checkpoints. FileWriter::close() returns only when the bytes are on the
// disk. The readers do not trust the content of a file. Every function throws std::runtime_error
// "PATH: what is wrong".
namespace fsdp {

// Writes a new file, or replaces the content of an existing file.
class FileWriter {
 public:
  explicit FileWriter(std::string path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;

  void write(const void* bytes, size_t count);
  void close();  // returns when the bytes are on the disk

  int64_t size() const { return size_; }              // number of bytes written so far
  std::string sha256() const { return hash_.hex(); }  // SHA-256 of the bytes written so far

 private:
  std::string path_;
  int descriptor_;
  int64_t size_{};
  Sha256 hash_;
};

class FileReader {
 public:
  explicit FileReader(std::string path);
  ~FileReader();
  FileReader(const FileReader&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // number of bytes in the file
  // Reads exactly `count` bytes of the file, from `offset` on, to `into`.
  void read(int64_t offset, void* into, size_t count) const;
  std::string sha256() const;  // SHA-256 of the whole file

 private:
  std::string path_;
  int descriptor_;
  int64_t size_{};
};

// Returns the content of the file `path`. Throws if the file has more than `most` bytes.
std::string read_text(const std::string& path, int64_t most);
// Throws std::runtime_error if `begin`, the first bytes of the file `path`, show that the file is
// only a pointer of Git LFS, a small text that stands in place of a large file until the user
// fetches it.
void refuse_lfs_pointer(const std::string& path, std::string_view begin);
// Writes the folder's list of files to the disk, so that no new file name is lost in a crash.
void sync_folder(const std::string& path);

}  // namespace fsdp
