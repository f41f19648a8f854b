#pragma once

#include <comm/communicator.h>
#include <nn/module.h>
#include <optim/gradient_buckets.h>
#include <optim/shard_layout.h>
#include <unrecorded_calls.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// PyTorch's Reducer, for DistributedDataParallel: puts the mean over ranks into the .grad of a
// module's parameters. The module's hooks own this object. (--mode ddp of the trainer does not use
// it: its strategy, trainer/strategies/replica_strategy.h, adds the gradients of microbatches as a
// tree, needs no .grad afterwards, and compares nothing between ranks in a backward pass.)
class Reducer : public std::enable_shared_from_this<Reducer> {
 public:
  struct Entry : NamedParameter {
    // A trap: reading its values throws. It is in .grad during a backward pass, and after passes in
    // no_sync() until a pass outside no_sync() ends.
    at::Tensor placeholder;
    // While `placeholder` is in .grad: this rank's sum of gradients that are not reduced, and the
    // .grad that `placeholder` has replaced.
    at::Tensor local{}, reduced{};
    bool broken{};  // some of these gradients were lost in a pass that threw
    // These describe the pass that has not ended. `trains`: its gradient has a place in a bucket of
    // the pass.
    // `arriving`: autograd has a gradient and adds it to .grad next. `arrived`: it has added one.
    bool trains{}, arriving{}, arrived{};
    at::Tensor unsynced{};  // the gradient that arrived in a pass in no_sync()
    GradientBuckets::Place place{};
    std::function<void()> remove_hook{[] {}};
  };

  Reducer(Module& net, std::shared_ptr<Communicator> comm, double bucket_cap_mb);
  ~Reducer();
  Reducer(const Reducer&) = delete;
  void register_hooks();

  // Returns the parameters with their gradients, in the order of distinct_parameters().
  const std::vector<Entry>& entries() const { return entries_; }
  void begin_forward();  // of the module, outside a backward pass
  // Throws std::logic_error if a parameter was registered with the module after this object was
  // made. The error names the parameter.
  void check_parameters() const;
  void set_sync(bool sync) { sync_ = sync; }
  void zero_grad();

 private:
  struct Bucket {
    int64_t numel;
    int64_t pending{};  // gradients that have not arrived
    at::Tensor sum{};   // [numel] from Communicator::empty(), from the first gradient on
    Handle reduction{};
  };

  void begin_pass();  // called at every sign of a backward pass that adds gradients to .grad
  void prepare_for_backward();
  // Called before autograd adds `gradient` to .grad.
  void autograd_hook(Entry& entry, const at::Tensor& gradient);
  void mark_ready(Entry& entry);
  void collect_of_inner_pass(Entry& entry, const at::Tensor& gradient);
  at::Tensor slot(const Entry& entry);
  void send_next();
  void finish(Bucket& bucket);
  void finalize_backward();
  void move_gradients_to_leaves();
  void break_off();
  void compare_ranks();

  Module& net_;
  std::shared_ptr<Communicator> comm_, replicas_;  // the second may be null
  int64_t cap_;                                    // [bytes]
  std::vector<Entry> entries_;
  std::vector<Bucket> buckets_;  // of this pass, in the order in which they are sent
  size_t sent_{};                // number of buckets of which the reduction was issued
  int64_t passes_{};             // number of passes that have compared ranks
  // The engine's number of the pass that has not ended; -1: none. Passes inside it have other
  // numbers.
  int pass_{-1};
  UnrecordedCalls unrecorded_;  // of the module
  bool reduces_{};              // whether the pass that has not ended reduces gradients
  bool sync_{true};             // whether the next pass will reduce gradients
};

}  // namespace fsdp
