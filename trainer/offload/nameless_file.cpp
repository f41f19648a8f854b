#include <base/torch.h>
#include <fcntl.h>
#include <offload/nameless_file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>

namespace fsdp {
namespace {

constexpr int64_t kAlign = 64;  // [bytes], of a copy's begin: for kernels with vectors

// Where the file system knows no files without a name, one whose name is removed at once. -1 and
// errno if that fails too.
int open_nameless(const std::string& folder) {
  const int descriptor = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return descriptor;
  std::string path = folder + "/fsdp-XXXXXX";
  const int named = mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) unlink(path.c_str());
  return named;
}

// A file, all of it, in the address space.
struct Mapping {
  NamelessFile file;
  size_t bytes;
  char* begin;

  Mapping(const std::string& folder, int64_t size, const std::string& what)
      : file(folder, size, what), bytes(static_cast<size_t>(size)) {
    void* const all =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.descriptor(), 0);
    if (all == MAP_FAILED) file.fail(errno, "can't map " + what);
    begin = static_cast<char*>(all);
    madvise(begin, bytes, MADV_SEQUENTIAL);
  }
  ~Mapping() { munmap(begin, bytes); }
  Mapping(const Mapping&) = delete;
};

int64_t aligned_bytes(const at::Tensor& tensor) {
  const int64_t bytes = tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

// Not through the mapping: there a disk that fails would be a signal.
void write_all(const NamelessFile& file, const at::Tensor& tensor, int64_t offset,
               const std::string& what) {
  const auto* data = static_cast<const char*>(tensor.const_data_ptr());
  for (auto left = tensor.nbytes(); left > 0;) {
    const ssize_t written = pwrite(file.descriptor(), data, left, offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) file.fail(errno, "can't write " + what);
    data += written;
    offset += written;
    left -= static_cast<size_t>(written);
  }
}

}  // namespace

NamelessFile::NamelessFile(std::string folder, int64_t bytes, const std::string& what)
    : folder_(std::move(folder)), descriptor_(open_nameless(folder_)) {
  if (descriptor_ < 0) fail(errno, "can't make a file for " + what);
  const int error = bytes == 0 ? 0 : posix_fallocate(descriptor_, 0, bytes);
  if (error == 0) return;
  close(descriptor_);
  fail(error, "can't reserve " + std::to_string(bytes) + " bytes for " + what);
}

NamelessFile::~NamelessFile() {
  close(descriptor_);
}

void NamelessFile::fail(int error, const std::string& doing) const {
  throw std::runtime_error(folder_ + ": " + doing + ": " + std::strerror(error));
}

std::vector<at::Tensor> copies_in_file(const std::string& folder,
                                       const std::vector<at::Tensor>& tensors,
                                       const std::string& what) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors)
    bytes += aligned_bytes(tensor);
  if (bytes == 0) return tensors;
  const auto mapping = std::make_shared<Mapping>(folder, bytes, what);
  std::vector<at::Tensor> copies;
  int64_t offset = 0;
  for (const at::Tensor& tensor : tensors) {
    copies.emplace_back();
    if (!tensor.defined()) continue;
    write_all(mapping->file, tensor.contiguous(), offset, what);
    copies.back() = at::from_blob(
        mapping->begin + offset, tensor.sizes(), [mapping](void*) {}, tensor.options());
    offset += aligned_bytes(tensor);
  }
  return copies;
}

}  // namespace fsdp
