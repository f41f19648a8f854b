#pragma once

#include <digest/sha256.h>

#include <cstdint>
#include <string>
#include <string_view>

// Files whose writers must know that the bytes are on the disk, and whose readers do not trust the
// content. Every function throws std::runtime_error "PATH: what is wrong".
namespace fsdp {

// Writes a new file, or replaces the content of an existing one.
class FileWriter {
 public:
  explicit FileWriter(std::string path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;

  void write(const void* bytes, size_t count);
  void close();  // returns when the bytes are on the disk

  int64_t size() const { return size_; }              // [bytes] written
  std::string sha256() const { return hash_.hex(); }  // of the bytes written

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
  int64_t size() const { return size_; }  // [bytes]
  // Reads exactly `count` bytes from `offset` on.
  void read(int64_t offset, void* into, size_t count) const;
  std::string sha256() const;  // of the whole file

 private:
  std::string path_;
  int descriptor_;
  int64_t size_{};
};

// Returns the whole file. Throws if it has more than `most` bytes.
std::string read_text(const std::string& path, int64_t most);
// Throws std::runtime_error if `begin`, the first bytes of the file, are those of a pointer of Git
// LFS, which lies in the place of a large file until that is fetched.
void refuse_lfs_pointer(const std::string& path, std::string_view begin);
// Returns when the names of the files in the folder are on the disk.
void sync_folder(const std::string& path);

}  // namespace fsdp
