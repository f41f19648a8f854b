#pragma once

#include <base/torch.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstring>
#include <string>
#include <vector>

namespace fsdp {

// Stands in for NCCL in tests: a process group of one rank on the CPU, which appends a note for
// each call:
// - "gather 640", "reduce 640", "all-reduce 640": a collective was issued, and its input has 640
//   elements;
// - "wait gather 640": the current stream waits for that collective;
// - "stop": isCompleted() or synchronize() of a collective was called, by which the CPU could wait
//   for it;
// - "shutdown": the process group was shut down.
class ProcessGroupOfOne : public c10d::Backend {
 public:
  using Notes = std::vector<std::string>;

  explicit ProcessGroupOfOne(std::shared_ptr<Notes> notes)
      : c10d::Backend(0, 1), notes_(std::move(notes)) {}

  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions&) override {
    return copied("gather", output, input);
  }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions&) override {
    return copied("reduce", output, input);
  }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions&) override {
    return noted("all-reduce", tensors.at(0));
  }
  void shutdown() override { notes_->emplace_back("shutdown"); }

 private:
  class NotedWork : public c10d::Work {
   public:
    NotedWork(std::shared_ptr<Notes> notes, std::string call)
        : notes_(std::move(notes)), call_(std::move(call)) {}
    bool wait(std::chrono::milliseconds) override {
      notes_->push_back("wait " + call_);
      return true;
    }
    bool isCompleted() override { return stop(); }
    void synchronize() override { stop(); }

   private:
    bool stop() {
      notes_->emplace_back("stop");
      return true;
    }
    std::shared_ptr<Notes> notes_;
    std::string call_;
  };

  c10::intrusive_ptr<c10d::Work> copied(const char* what, at::Tensor& output,
                                        const at::Tensor& input) {
    std::memmove(output.mutable_data_ptr(), input.const_data_ptr(), input.nbytes());
    return noted(what, input);
  }
  c10::intrusive_ptr<c10d::Work> noted(const char* what, const at::Tensor& tensor) {
    notes_->push_back(std::string(what) + ' ' + std::to_string(tensor.numel()));
    return c10::make_intrusive<NotedWork>(notes_, notes_->back());
  }

  std::shared_ptr<Notes> notes_;
};

}  // namespace fsdp
