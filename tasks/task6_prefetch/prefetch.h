#pragma once

#include <flat_parameter.h>
#include <nn/module.h>

#include <memory>
#include <vector>

namespace fsdp {

// Issues all-gathers before they are needed, so that they run while another unit computes. The
// order of units is the one seen last time. At most `limit` units are gathered at any time, the
// running one counted and the root and the running unit's ancestors not; 1 means no prefetch.
// - Forward: when a unit has been gathered, those that came next in the last forward are issued.
// - Backward: likewise those that ended before it in forward, latest first. That is before the
//   unit's gradients are computed, and so before its reduce-scatter, which would delay them.
class Prefetcher : public std::enable_shared_from_this<Prefetcher> {
 public:
  explicit Prefetcher(int limit) : window_(static_cast<size_t>(limit - 1)) {}

  // Registers hooks that run after those of tasks 3 and 4, which must have been registered before.
  // `root` is gathered throughout and has no place in the order; its forward begins a new one.
  void add_root(Module& root);
  void add(Module& module, std::shared_ptr<FlatParameter> unit);

  // To be called when a backward pass ends: its order is used up.
  void end_backward() { backward_order_.clear(); }

  // The units in the order of use in the last forward, with repeats.
  const std::vector<std::shared_ptr<FlatParameter>>& forward_order() const {
    return forward_order_;
  }

 private:
  using Order = std::vector<std::shared_ptr<FlatParameter>>;
  size_t window_;         // units issued ahead of the running one
  Order forward_order_;   // of the forward under way
  Order backward_order_;  // ended in forward, still to come back

  // The root's forward begins and ends, and a unit has been gathered in forward and in backward.
  void begin_forward();
  void end_forward();
  void in_forward(const std::shared_ptr<FlatParameter>& unit);
  void in_backward(const std::shared_ptr<FlatParameter>& unit);

  // Add what you need.
};

}  // namespace fsdp
