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

// The optimizer state of one rank in a file instead of in memory (ZeRO-Infinity, section 5.2). The
// file is mapped, so tensors in it are used as any other tensors. A thread prefetches parts of the
// file and writes them back in the background, so that few pages are in memory at a time.
class MomentFile : public MomentStore {
 public:
  // Reserves `bytes`. The first resident_bytes(bytes, pinned) of them are in memory, counted in the
  // class optimizer_state; the others are in a file in `folder`. The file has no name, so its space
  // is free again when the process ends in any way. Throws std::runtime_error "FOLDER: what is
  // wrong", for example if the disk is too full.
  MomentFile(const std::string& folder, int64_t bytes, int64_t pinned);
  ~MomentFile() override;
  MomentFile(const MomentFile&) = delete;

  // Returns [numel] zeros, fp32, in the reserved bytes. They are valid as long as this object.
  // Throws std::logic_error if fewer bytes are left.
  at::Tensor zeros(int64_t numel) override;

  // Call it after each use of `part`, a tensor of zeros() or a part of one, in the same order in
  // every step.
  // - Writes the part to the file in the background, and removes from memory the part of the
  //   previous call.
  // - Prefetches the part that was used kAhead calls after this part in the last step.
  // - Returns at once, unless kBehind parts still have to be written.
  // Throws: std::runtime_error if the file can't be written.
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
  void work();  // runs in thread_
  void let_go(const Part& part);
  char* address(const Part& part) const { return begin_ + pinned_ + part.begin; }

  int64_t bytes_, pinned_;
  int64_t given_{};  // [bytes] passed to tensors so far
  AnonymousFile file_;
  char* begin_{};  // [bytes_], mapped: `pinned_` bytes of memory, then the file

  std::map<int64_t, Part> next_;  // begin of a part -> the part used after it
  int64_t last_{-1};              // begin of the part used last; -1: none

  std::mutex mutex_;
  std::condition_variable jobs_changed_;
  std::deque<Job> jobs_;
  int behind_{};  // jobs that write: in jobs_, and the one under way
  bool stops_{};
  int error_{};  // errno of a failed write; 0: none
  std::thread thread_;
};

}  // namespace fsdp
