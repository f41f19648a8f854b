#include <fcntl.h>
#include <offload/anonymous_file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

// Opens a file without a name in `folder`. If the file system does not support this (O_TMPFILE),
// opens a file with a name and removes the name at once. Returns -1 and sets errno if the file
// can't be opened.
int open_nameless(const std::string& folder) {
  const int descriptor = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return descriptor;
  std::string path = folder + "/fsdp-XXXXXX";
  const int named = mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) unlink(path.c_str());
  return named;
}

}  // namespace

AnonymousFile::AnonymousFile(std::string folder, int64_t bytes, const std::string& what)
    : folder_(std::move(folder)), descriptor_(open_nameless(folder_)) {
  if (descriptor_ < 0) fail(errno, "can't make a file for " + what);
  const int error = bytes == 0 ? 0 : posix_fallocate(descriptor_, 0, bytes);
  if (error == 0) return;
  close(descriptor_);
  fail(error, "can't reserve " + std::to_string(bytes) + " bytes for " + what);
}

AnonymousFile::~AnonymousFile() {
  close(descriptor_);
}

void AnonymousFile::fail(int error, const std::string& doing) const {
  throw std::runtime_error(folder_ + ": " + doing + ": " + std::strerror(error));
}

}  // namespace fsdp
