#pragma once

#include <flat_parameter.h>
#include <nn/module.h>

#include <map>
#include <memory>
#include <vector>

namespace fsdp {

// Issues all-gathers before they are needed, so that they run while another unit computes. It looks
// `limit` - 1 units ahead.
// - When the root has been unsharded for its forward, it issues the units that came first in the
//   last forward.
// - In forward, when a unit has been unsharded, it issues the units that came next in the last
//   forward.
// - In backward, when a unit has been unsharded, it issues the units that finished just before it
//   in forward, the most recent first. They are issued before this unit computes, hence ahead of
//   its reduce-scatter, which would delay them.
// A call whose output requires no gradient does not come back, so backward does not expect it; nor
// does it unshard a module whose reads_parameters_in_backward() is false.
// At most `limit` units are gathered at a time: the running one counts; the root and the running
// unit's ancestors do not, nor do units that stay unsharded because they are not resharded after
// forward, or because another of their uses has not come back. If a pass takes another path than
// expected, what was issued for the expected path stays gathered besides, until the root's forward
// or the backward ends. A limit of 1 means no prefetch.
class Prefetcher : public std::enable_shared_from_this<Prefetcher> {
 public:
  explicit Prefetcher(int limit) { set_limit(limit); }  // throws what set_limit() throws
  Prefetcher(const Prefetcher&) = delete;               // the hooks hold this object

  // From the next unit on. Throws std::invalid_argument if the limit is below 1; then it stays as
  // it was.
  void set_limit(int limit);

  // Both register hooks that run after those of tasks 3 and 4, which must be registered before.
  // `root` is unsharded throughout and has no place in the order. Its forward begins a new order.
  void add_root(Module& root);
  void add(Module& module, std::shared_ptr<FlatParameter> unit);

  // Drops the order of backward. Call it when a backward pass has ended or has broken off.
  void end_backward() { backward_order_.clear(); }

  // The units in the order of use in the last forward, with repeats.
  const std::vector<std::shared_ptr<FlatParameter>>& forward_order() const {
    return forward_order_;
  }

  // Extension (see "Going further" in the handout), with FSDP2's names. From now on, when `module`
  // has been unsharded in this direction, it issues the units of `modules`, in this order, in place
  // of those that the limit allows. Throws std::invalid_argument if one was not given to add().
  void set_modules_to_forward_prefetch(Module& module, const std::vector<Module*>& modules);
  void set_modules_to_backward_prefetch(Module& module, const std::vector<Module*>& modules);

 private:
  using Order = std::vector<std::shared_ptr<FlatParameter>>;
  size_t window_{};       // units issued ahead of the running one
  Order forward_order_;   // of the forward under way
  Order backward_order_;  // ended in forward, still to come back

  void begin_forward();  // the root has been unsharded for its forward
  void pre_forward(const std::shared_ptr<FlatParameter>& unit);   // it has been unsharded
  void end_forward();                                             // the root's forward has ended
  void pre_backward(const std::shared_ptr<FlatParameter>& unit);  // it has been unsharded

  using Lists = std::map<const FlatParameter*, Order>;  // what a unit issues in place of the order
  // Throws unless all of them were given to add().
  void set_list(Lists Prefetcher::*lists, const Module& module,
                const std::vector<Module*>& modules);

  Order last_order_;                                               // of the forward before
  Order issued_ahead_;                                             // in the forward under way
  std::map<const Module*, std::shared_ptr<FlatParameter>> units_;  // all that were added
  Lists forward_lists_, backward_lists_;
};

}  // namespace fsdp
