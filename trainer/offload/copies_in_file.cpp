#include <base/torch.h>
#include <offload/anonymous_file.h>
#include <offload/copies_in_file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

namespace fsdp {
namespace {

// Each copy begins at a multiple of this many bytes, for vectorized kernels.
constexpr int64_t kAlign = 64;

// An AnonymousFile that is mapped into memory as a whole.
struct Mapping {
  AnonymousFile file;
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

// Writes the tensor with pwrite(), which reports an error of the disk. If the tensor were written
// through the mapping, the error would be a signal (SIGBUS).
void write_all(const AnonymousFile& file, const at::Tensor& tensor, int64_t offset,
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
