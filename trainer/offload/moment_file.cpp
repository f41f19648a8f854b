#include <fcntl.h>
#include <memory/live_bytes.h>
#include <offload/moment_file.h>
#include <optim/shard_layout.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>

namespace fsdp {

MomentFile::MomentFile(const std::string& folder, int64_t bytes, int64_t pinned)
    : bytes_(bytes),
      pinned_(resident_bytes(bytes, pinned)),
      file_(folder, bytes_ - pinned_, "the optimizer state of a rank") {
  const int64_t in_file = bytes_ - pinned_;
  if (bytes_ == 0) return;
  void* const all = mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) file_.fail(errno, "can't map optimizer state");
  begin_ = static_cast<char*>(all);
  try {
    if (in_file > 0 && mmap(begin_ + pinned_, static_cast<size_t>(in_file), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_FIXED, file_.descriptor(), 0) == MAP_FAILED) {
      file_.fail(errno, "can't map optimizer state");
    }
    thread_ = std::thread([this] { work(); });
  } catch (...) {
    munmap(begin_, static_cast<size_t>(bytes_));
    throw;
  }
  live_bytes::add(MemoryClass::optimizer_state, pinned_);
}

MomentFile::~MomentFile() {
  if (begin_ == nullptr) return;
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  jobs_changed_.notify_all();
  thread_.join();
  munmap(begin_, static_cast<size_t>(bytes_));
  live_bytes::remove(MemoryClass::optimizer_state, pinned_, begin_);
}

at::Tensor MomentFile::zeros(int64_t numel) {
  const int64_t bytes = numel * static_cast<int64_t>(sizeof(float));
  if (given_ + bytes > bytes_) {
    throw std::logic_error(file_.folder() + ": " + std::to_string(bytes_) +
                           " bytes are reserved for optimizer state, and more is wanted");
  }
  void* const data = begin_ + given_;
  given_ += bytes;
  return at::from_blob(data, {numel}, at::kFloat);
}

// Returns the part of the file that has `tensor`, rounded outwards to whole pages, so the parts of
// neighbouring tensors can share a page. If the tensor is in memory and not in the file, the
// returned part has begin >= end.
MomentFile::Part MomentFile::part_of(const at::Tensor& tensor) const {
  const auto from = static_cast<char*>(tensor.data_ptr()) - begin_;
  const auto to = from + static_cast<int64_t>(tensor.nbytes());
  return {std::max(from / kPage * kPage, pinned_) - pinned_,
          std::min(round_up(to, kPage), bytes_) - pinned_};
}

// Records that `part` was used after the part of the previous call. Returns the part to prefetch:
// the one that was used kAhead calls after `part` in the previous step; nothing in the first step.
std::optional<MomentFile::Part> MomentFile::to_read_after(const Part& part) {
  if (last_ >= 0) next_[last_] = part;
  last_ = part.begin;
  Part ahead = part;
  for (int i = 0; i < kAhead; ++i) {
    const auto next = next_.find(ahead.begin);
    if (next == next_.end()) return {};
    ahead = next->second;
  }
  return ahead;
}

void MomentFile::used(const at::Tensor& tensor) {
  const Part part = part_of(tensor);
  if (part.begin >= part.end) return;  // no part of the tensor is in the file
  const auto ahead = to_read_after(part);
  std::unique_lock lock(mutex_);
  jobs_changed_.wait(lock, [this] { return behind_ < kBehind || error_ != 0; });
  if (error_ != 0) file_.fail(error_, "can't write optimizer state");
  if (ahead) jobs_.push_back({*ahead, /*write=*/false});
  jobs_.push_back({part, /*write=*/true});
  ++behind_;
  jobs_changed_.notify_all();
}

void MomentFile::work() {
  // The part of the file that this thread wrote last; its pages are still in memory. Empty: this
  // thread has written no part yet.
  std::optional<Part> written;
  while (true) {
    std::unique_lock lock(mutex_);
    jobs_changed_.wait(lock, [this] { return stops_ || !jobs_.empty(); });
    if (stops_) return;
    const auto [part, write] = jobs_.front();
    jobs_.pop_front();
    lock.unlock();
    if (!write) {
      madvise(address(part), static_cast<size_t>(part.end - part.begin), MADV_WILLNEED);
      continue;
    }
    sync_file_range(file_.descriptor(), part.begin, part.end - part.begin, SYNC_FILE_RANGE_WRITE);
    if (written) let_go(*written);
    written = part;
    lock.lock();
    --behind_;
    jobs_changed_.notify_all();
  }
}

// Waits until the pages of `part` are on the disk, then removes them from memory. A page that the
// optimizer has changed again meanwhile stays in memory.
void MomentFile::let_go(const Part& part) {
  const int64_t count = part.end - part.begin;
  if (sync_file_range(
          file_.descriptor(), part.begin, count,
          SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER) != 0) {
    const std::lock_guard lock(mutex_);
    error_ = errno;
    return;
  }
  madvise(address(part), static_cast<size_t>(count), MADV_DONTNEED);
  posix_fadvise(file_.descriptor(), part.begin, count, POSIX_FADV_DONTNEED);
}

}  // namespace fsdp
