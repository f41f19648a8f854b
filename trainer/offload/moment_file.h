#pragma once

#include <base/torch.h>
#include <offload/anonymous_file.h>
#include <offload/resident_bytes.h>
#include <optim/update_rule.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace fsdp {

// Optimizer state of one rank in a file, in place of memory (ZeRO-Infinity, section 5.2). The file
// is mapped: what lies in it are tensors as others are. A thread reads ahead and writes behind, so
// that few pages are in memory at a time.
class MomentFile : public MomentStore {
 public:
  // Reserves `bytes` in `folder`, of which the first resident_bytes(bytes, pinned) stay in memory,
  // in the class optimizer_state. The file has no name, so it ends with the process, however that
  // ends. Throws std::runtime_error "FOLDER: what is wrong", if the disk is too full for example.
  MomentFile(const std::string& folder, int64_t bytes, int64_t pinned);
  ~MomentFile() override;
  MomentFile(const MomentFile&) = delete;

  // [numel] zeros, fp32, of what was reserved. They are valid while the file is. Throws
  // std::logic_error if less is left.
  at::Tensor zeros(int64_t numel) override;

  // Call it after each use of a part, in the same order at each step. Writes the part in the
  // background, drops the part before it from memory, and reads ahead the part that came kAhead
  // later in the last step. Returns at once, but waits while kBehind parts are to be written.
  // Throws std::runtime_error if the file could not be written.
  void used(const at::Tensor& part) override;

  static constexpr int kBehind = 4, kAhead = 4;

 private:
  struct Part {
    int64_t begin, end;  // [bytes] in the file, whole pages
  };
  struct Job {
    Part part;
    bool write;
  };
  Part part_of(const at::Tensor& tensor) const;
  std::optional<Part> to_read_after(const Part& part);
  void work();  // the thread
  void let_go(const Part& part);
  char* address(const Part& part) const { return begin_ + pinned_ + part.begin; }

  int64_t bytes_, pinned_;
  int64_t given_{};  // [bytes] to tensors
  AnonymousFile file_;
  char* begin_{};  // [bytes_], mapped: `pinned_` bytes of memory, then the file

  std::map<int64_t, Part> next_;  // by where the part before it begins
  int64_t last_{-1};              // where the last part begins

  std::mutex mutex_;
  std::condition_variable jobs_changed_;
  std::deque<Job> jobs_;
  int behind_{};  // of them, those that write, and the one under way
  bool stops_{};
  int error_{};  // errno of a write
  std::thread thread_;
};

}  // namespace fsdp
