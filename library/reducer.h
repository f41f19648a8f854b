#pragma once

#include <comm/communicator.h>
#include <ddp.h>
#include <nn/module.h>
#include <optim/shard_layout.h>
#include <unrecorded_calls.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// PyTorch's Reducer, for DistributedDataParallel: puts the mean over ranks into the .grad of a
// module's parameters. The module's hooks own this object. The buckets, and the order in which they
// are reduced, are those of task 0 (BucketReducer), as in --mode ddp of the trainer. The buckets
// are fp32, also for gradients in 16 bits: so the sum and its division are fp32, and the mean is
// rounded once to the parameter's dtype. (An all-reduce in 16 bits would round the sum too.)
class Reducer : public std::enable_shared_from_this<Reducer> {
 public:
  struct Entry : NamedParameter {
    // A trap: reading its values throws. It is in .grad during a backward pass, after passes in
    // no_sync() until a pass outside no_sync() ends, and after a pass that threw until the user
    // drops it. It has the dtype of the parameter, which must not change.
    at::Tensor placeholder;
    // Two tensors that are kept while .grad is `placeholder`, a tensor whose values cannot be read.
    // `local`: this rank's sum of the gradients that are not reduced. `reduced`: the .grad that
    // `placeholder` has replaced.
    at::Tensor local{}, reduced{};
    // Says whether a backward pass threw and so lost gradients of this parameter that were not
    // reduced.
    bool broken{};
    // These three flags describe the current backward pass.
    // `trains`: the gradient has a place in a bucket of the pass.
    // `arriving`: autograd has a gradient and adds it to .grad next.
    // `arrived`: autograd has added a gradient to .grad.
    bool trains{}, arriving{}, arrived{};
    // If the current backward pass runs in no_sync(): the parameter's gradient of this pass.
    at::Tensor unsynced{};
    // If `trains`: the index by which the BucketReducer of the current pass knows the parameter's
    // gradient.
    size_t gradient{};
    std::function<void()> remove_hook{[] {}};
  };

  Reducer(Module& net, std::shared_ptr<Communicator> comm, double bucket_cap_mb);
  ~Reducer();
  Reducer(const Reducer&) = delete;
  void register_hooks();

  // Returns the Entry of each parameter of the module, in the order of distinct_parameters().
  const std::vector<Entry>& entries() const { return entries_; }
  // Call begin_forward() when a forward of the module begins, outside a backward pass.
  void begin_forward();
  // Throws std::logic_error if a parameter was registered with the module after this object was
  // made. The error names the parameter.
  void check_parameters() const;
  void set_sync(bool sync) { sync_ = sync; }
  void zero_grad();

 private:
  // Every hook that runs in a backward pass that adds gradients to .grad calls begin_pass(). Its
  // first call in the pass begins the pass.
  void begin_pass();
  void prepare_for_backward();
  // The tensor hook of a parameter. Autograd calls it before it adds `gradient` to .grad.
  void autograd_hook(Entry& entry, const at::Tensor& gradient);
  void mark_ready(Entry& entry);
  at::Tensor place_of(const Entry& entry);
  void write_to_place(const Entry& entry, const at::Tensor& gradient);
  void collect_of_inner_pass(Entry& entry, const at::Tensor& gradient);
  void finalize_backward();
  void move_gradients_to_leaves();
  void break_off();
  void compare_ranks();

  Module& net_;
  std::shared_ptr<Communicator> comm_, replicas_;  // replicas_ is null if there are no replicas
  int64_t cap_;                                    // [bytes] largest size of a bucket of gradients
  std::vector<Entry> entries_;
  std::unique_ptr<BucketReducer> buckets_;  // the buckets of the current pass; null between passes
  bool trains_{};     // whether `buckets_` has a place for the gradient of at least one parameter
  int64_t passes_{};  // number of backward passes in which the ranks have compared parameter values
  // The engine's number of the current backward pass; -1 between passes. A pass inside the current
  // pass has another number.
  int pass_{-1};
  // Detects that a call of the module, in backward, is the second one that activation checkpointing
  // makes.
  UnrecordedCalls unrecorded_;
  bool reduces_{};   // whether the current backward pass reduces gradients
  bool sync_{true};  // whether the next backward pass will reduce gradients
};

}  // namespace fsdp
