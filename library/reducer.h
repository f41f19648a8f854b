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
// are reduced, are those of task 0 (BucketReducer), as in --mode ddp of the trainer.
class Reducer : public std::enable_shared_from_this<Reducer> {
 public:
  struct Entry : NamedParameter {
    // A trap: reading its values throws. It is in .grad during a backward pass, after passes in
    // no_sync() until a pass outside no_sync() ends, and after a pass that threw until the user
    // drops it.
    at::Tensor placeholder;
    // While `placeholder` is in .grad: this rank's sum of gradients that are not reduced, and the
    // .grad that `placeholder` has replaced.
    at::Tensor local{}, reduced{};
    bool broken{};  // some of these gradients were lost in a pass that threw
    // These describe the pass that has not ended.
    // `trains`: the gradient has a place in a bucket of the pass.
    // `arriving`: autograd has a gradient and adds it to .grad next.
    // `arrived`: autograd has added a gradient to .grad.
    bool trains{}, arriving{}, arrived{};
    at::Tensor unsynced{};  // the gradient that arrived in a pass in no_sync()
    size_t gradient{};      // if `trains`: the gradient's number in the buckets of the pass
    std::function<void()> remove_hook{[] {}};
  };

  Reducer(Module& net, std::shared_ptr<Communicator> comm, double bucket_cap_mb);
  ~Reducer();
  Reducer(const Reducer&) = delete;
  void register_hooks();

  // Returns the parameters with their gradients, in the order of distinct_parameters().
  const std::vector<Entry>& entries() const { return entries_; }
  void begin_forward();  // call it when a forward of the module begins, outside a backward pass
  // Throws std::logic_error if a parameter was registered with the module after this object was
  // made. The error names the parameter.
  void check_parameters() const;
  void set_sync(bool sync) { sync_ = sync; }
  void zero_grad();

 private:
  void begin_pass();  // called at every sign of a backward pass that adds gradients to .grad
  void prepare_for_backward();
  // Called before autograd adds `gradient` to .grad.
  void autograd_hook(Entry& entry, const at::Tensor& gradient);
  void mark_ready(Entry& entry);
  void collect_of_inner_pass(Entry& entry, const at::Tensor& gradient);
  void finalize_backward();
  void move_gradients_to_leaves();
  void break_off();
  void compare_ranks();

  Module& net_;
  std::shared_ptr<Communicator> comm_, replicas_;  // the second may be null
  int64_t cap_;                                    // [bytes]
  std::vector<Entry> entries_;
  std::unique_ptr<BucketReducer> buckets_;  // of the pass that has not ended; else null
  bool trains_{};                           // a gradient has a place in a bucket of the pass
  int64_t passes_{};                        // number of passes that have compared ranks
  // The engine's number of the pass that has not ended; -1: none. Passes inside it have other
  // numbers.
  int pass_{-1};
  UnrecordedCalls unrecorded_;  // of the module
  bool reduces_{};              // whether the pass that has not ended reduces gradients
  bool sync_{true};             // whether the next pass will reduce gradients
};

}  // namespace fsdp
