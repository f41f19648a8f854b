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

// Keeps the optimizer state of one rank in a file instead of in memory (ZeRO-Infinity, section
// 5.2). The file is mapped into memory, so its tensors are used as any other tensors. A thread
// prefetches parts of the file and writes them back in the background, so that few pages are in
// memory at a time.
class MomentFile : public MomentStore {
 public:
  // Reserves `bytes` bytes for tensors. The first resident_bytes(bytes, pinned) of them are in
  // memory, counted in MemoryClass::optimizer_state; the others are in a file in `folder`. The file
  // has no name, so its space is free again when the process ends in any way. Throws
  // std::runtime_error "FOLDER: what is wrong", for example if the disk is too full.
  MomentFile(const std::string& folder, int64_t bytes, int64_t pinned);
  ~MomentFile() override;
  MomentFile(const MomentFile&) = delete;

  // Returns a tensor [numel] of zeros, fp32, in the reserved bytes. The tensor is valid as long as
  // this object lives. Throws std::logic_error if fewer bytes are left.
  at::Tensor zeros(int64_t numel) override;

  // The optimizer calls it after each use of `part`, which is a tensor from zeros() or a part of
  // one, in the same order in every step.
  // - A background thread writes the part to the file, and removes from memory the part of the
  //   previous call.
  // - The thread prefetches the part that was used kAhead calls after this part in the previous
  //   step.
  // - used() returns at once, unless kBehind parts still have to be written.
  // Throws: std::runtime_error if the file can't be written.
  void used(const at::Tensor& part) override;

  static constexpr int kBehind = 4, kAhead = 4;

 private:
  struct Part {
    int64_t begin, end;  // offsets in the file, in bytes, multiples of the size of a page
  };
  struct Job {
    Part part;
    bool write;
  };
  Part part_of(const at::Tensor& tensor) const;
  std::optional<Part> to_read_after(const Part& part);
  void work();  // the function that thread_ runs
  void let_go(const Part& part);
  char* address(const Part& part) const { return begin_ + pinned_ + part.begin; }

  int64_t bytes_, pinned_;
  int64_t given_{};  // number of bytes that zeros() has used for tensors so far
  AnonymousFile file_;
  // Beginning of the mapped memory of bytes_ bytes: the first pinned_ bytes are memory, the others
  // are the file.
  char* begin_{};

  std::map<int64_t, Part> next_;  // begin of a Part of the file -> the Part that was used after it
  int64_t last_{-1};              // begin of the Part that was used last; -1: none was used yet

  std::mutex mutex_;
  std::condition_variable jobs_changed_;
  std::deque<Job> jobs_;
  int behind_{};  // number of write jobs that are not finished: those in jobs_, and one under way
  bool stops_{};
  int error_{};  // errno of a failed write; 0: none
  std::thread thread_;
};

}  // namespace fsdp
