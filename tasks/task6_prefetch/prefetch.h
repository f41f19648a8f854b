#pragma once

#include <base/todo.h>
#include <flat_parameter.h>
#include <nn/module.h>

#include <memory>
#include <vector>

namespace fsdp {

// Issues all-gathers before they are needed, so that they run while another unit computes. It looks
// `limit` - 1 units ahead.
//
// In forward:
// - When the root has been unsharded for its forward, it issues the units that came first in the
//   last forward.
// - When a unit has been unsharded, it issues the units that came next in the last forward.
//
// In backward:
// - When a unit has been unsharded, it issues the units that finished just before it in forward,
//   the most recent first. They are issued before this unit computes, hence ahead of its
//   reduce-scatter, which would delay them.
// - A call whose output requires no gradient does not come back, so backward does not expect it.
// - Backward does not unshard a module whose reads_parameters_in_backward() is false, so it does
//   not expect its calls either.
//
// Forwards without a backward pass:
// - A forward of the root that throws leaves nothing to backward: the calls that had ended in it do
//   not come back. As the last forward it counts as far as it came.
// - A forward over which no backward runs is expected until the next backward pass ends.
//
// The limit:
// - At most `limit` units are gathered at a time. The running unit counts. The root and the running
//   unit's ancestors do not count, nor do units that stay unsharded because they are not resharded
//   after forward, or because another of their uses has not come back.
// - If forward or backward takes another path than expected, what was issued for the expected path
//   stays gathered besides, until the root's forward or the backward pass ends.
// - A limit of 1 means no prefetch.
class Prefetcher {
 public:
  virtual ~Prefetcher() = default;
  Prefetcher(const Prefetcher&) = delete;  // the hooks hold this object

  // Sets the limit from the next unit that is unsharded on, in forward and in backward.
  // Throws std::invalid_argument if the limit is below 1; then the limit stays as it was.
  virtual void set_limit(int limit) = 0;

  // Registers hooks on `root` that run after those of tasks 3 and 4, which must be registered
  // before. The root is unsharded throughout and has no place in the order. Its forward begins a
  // new order.
  virtual void add_root(Module& root) = 0;
  // Registers hooks on `module` that run after those of tasks 3 and 4, which must be registered
  // before.
  virtual void add(Module& module, std::shared_ptr<FlatParameter> unit) = 0;

  // Drops the order of backward, of all forwards. Call it when a backward pass has ended or has
  // broken off.
  virtual void end_backward() = 0;

  // Returns the units in the order of use, with repeats: during a forward, the units of this
  // forward so far; after it, the units of this last forward.
  virtual const std::vector<std::shared_ptr<FlatParameter>>& forward_order() const = 0;

  // Extension (see "Going further" in the handout), with FSDP2's names; one function for each
  // direction. From now on, when `module` has been unsharded in this direction, the units of
  // `modules` are issued, in this order, in place of those that the limit allows.
  // Throws std::invalid_argument if one of the modules was not given to add().
  virtual void set_modules_to_forward_prefetch(Module& /*module*/,
                                               const std::vector<Module*>& /*modules*/) {
    todo("Prefetcher::set_modules_to_forward_prefetch", "6.6");
  }
  virtual void set_modules_to_backward_prefetch(Module& /*module*/,
                                                const std::vector<Module*>& /*modules*/) {
    todo("Prefetcher::set_modules_to_backward_prefetch", "6.6");
  }

 protected:
  Prefetcher() = default;
};

std::shared_ptr<Prefetcher> make_prefetcher(int limit);  // throws what set_limit() throws

}  // namespace fsdp
