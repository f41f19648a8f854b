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
// module's parameters. The module's hooks own it. (--mode ddp of the trainer does not use it: its
// strategy, trainer/strategies/replica_strategy.h, adds parts of the batch as a tree, needs no
// .grad afterwards, and compares nothing between ranks in a pass.)
class Reducer : public std::enable_shared_from_this<Reducer> {
 public:
  struct Entry : NamedParameter {
    at::Tensor placeholder;  // a trap: in .grad in a pass, and until one outside of no_sync() ends
    at::Tensor local{}, reduced{};  // then: this rank's sum, and what `placeholder` has replaced
    bool broken{};                  // a part of them was lost in a pass that threw
    // Of the pass that has not ended.
    bool trains{}, arriving{}, arrived{};
    at::Tensor unsynced{};  // what arrived in no_sync()
    GradientBuckets::Place place{};
    std::function<void()> remove_hook{[] {}};
  };

  Reducer(Module& net, std::shared_ptr<Communicator> comm, double bucket_cap_mb);
  ~Reducer();
  Reducer(const Reducer&) = delete;
  void register_hooks();

  const std::vector<Entry>& entries() const { return entries_; }  // as distinct_parameters()
  void begin_forward();           // of the module, outside of a backward pass
  void check_parameters() const;  // throws std::logic_error naming one that is new
  void set_sync(bool sync) { sync_ = sync; }
  void zero_grad();

 private:
  struct Bucket {
    int64_t numel;
    int64_t pending{};  // gradients that have not arrived
    at::Tensor sum{};   // [numel] from Communicator::empty(), from the first gradient on
    Handle reduction{};
  };

  void begin_pass();  // at every sign of a pass that adds gradients to .grad
  void prepare_for_backward();
  void autograd_hook(Entry& entry, const at::Tensor& gradient);  // and is added to .grad next
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
  std::vector<Bucket> buckets_;  // of the pass, in the order in which they are sent
  size_t sent_{};                // of them
  int64_t passes_{};             // that were reduced
  int pass_{-1};                // the engine's number of the pass that has not ended; passes inside
                                // it have others
  UnrecordedCalls unrecorded_;  // of the module
  bool reduces_{};              // that pass
  bool sync_{true};             // a pass that begins reduces
};

}  // namespace fsdp
