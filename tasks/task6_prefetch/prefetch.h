#pragma once

#include <base/todo.h>
#include <flat_parameter.h>
#include <nn/module.h>

#include <memory>
#include <vector>

namespace fsdp {

// Issues all-gathers before they are needed, so that they run while another unit computes. It
// issues up to `limit` - 1 units ahead. To issue a unit means to issue its all-gather.
//
// In forward:
// - When the root has been unsharded for its forward, the prefetcher issues the units that came
//   first in the last forward.
// - When a unit has been unsharded, the prefetcher issues the units that came next in the last
//   forward.
//
// In backward:
// - When a unit has been unsharded, the prefetcher issues the units that finished just before this
//   unit in forward, the most recent first. It issues them before this unit computes. So they are
//   ahead of this unit's reduce-scatter, which would delay them.
// - If the output of a call requires no gradient, backward does not run through this call, so no
//   unit is issued for it.
// - If reads_parameters_in_backward() of a module is false, backward does not unshard its unit, so
//   no unit is issued for a call of this module.
//
// Forwards without a backward pass:
// - If a forward of the root throws, backward does not expect the calls that had ended in this
//   forward. For the next forward, the last forward is then the part before the exception.
// - If no backward runs over a forward, backward expects the calls of this forward until the next
//   backward pass ends.
//
// The limit:
// - At most `limit` units are gathered at a time. The running unit counts. The root and the units
//   around the running unit do not count. A unit does not count either if it is not resharded after
//   forward, or if it stays unsharded because the backward of another use of it has not ended.
// - If forward or backward uses the units in another order than expected, the units that were
//   issued for the expected order stay gathered in addition, until the root's forward or the
//   backward pass ends.
// - A limit of 1 means no prefetch.
class Prefetcher {
 public:
  virtual ~Prefetcher() = default;
  Prefetcher(const Prefetcher&) = delete;  // the hooks hold this object

  // Sets the limit. The new limit applies from the next unit that is unsharded, in forward and in
  // backward. Throws std::invalid_argument if the limit is below 1; then the limit stays as it was.
  virtual void set_limit(int limit) = 0;

  // Registers hooks on `root`. They run after the hooks of tasks 3 and 4, which must be registered
  // before. The root stays unsharded and is not in the order. Its forward begins a new order.
  virtual void add_root(Module& root) = 0;
  // Registers hooks on `module`. They run after the hooks of tasks 3 and 4, which must be
  // registered before.
  virtual void add(Module& module, std::shared_ptr<FlatParameter> unit) = 0;

  // Forgets the units of all forwards that backward still expects. Call this function when a
  // backward pass has ended or has failed.
  virtual void end_backward() = 0;

  // Returns the units in the order of use. A unit that was used twice is there twice. During a
  // forward, these are the units that it has used so far. After a forward, these are all units that
  // it used.
  virtual const std::vector<std::shared_ptr<FlatParameter>>& forward_order() const = 0;

  // Extension (see "Going further" in the handout), with FSDP2's names. There is one function for
  // each direction. From now on, when the unit of `module` has been unsharded in this direction,
  // the units of `modules` are issued, in this order. They take the place of the units that the
  // limit allows.
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
