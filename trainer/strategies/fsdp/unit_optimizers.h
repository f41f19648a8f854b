#pragma once

#include <fully_shard.h>
#include <sharded_optimizer.h>

#include <memory>
#include <vector>

namespace fsdp {

// A ShardedOptimizer for each unit, in place of one for all: so a unit can be updated while
// backward goes on, and few units have a sharded gradient at a time (LOMO, section 3.2).
class UnitOptimizers {
 public:
  UnitOptimizers(const std::vector<std::shared_ptr<FlatParameter>>& units,
                 const std::vector<ParameterGroup>& groups, std::shared_ptr<Communicator> comm);

  // Updates the units whose gradient has been reduced, and drops it. Waits for nobody: the unit's
  // reduce-scatter has shown that all ranks have waited for its all-gathers. Calls no collective.
  void step();

  // As that of one optimizer of all units.
  std::vector<StateRange> state();

 private:
  std::vector<std::shared_ptr<FlatParameter>> units_;
  std::vector<std::shared_ptr<ShardedOptimizer>> optimizers_;  // by unit
  std::shared_ptr<Communicator> comm_;
};

// From now on backward calls optimizers->step() whenever a unit's module has come back. By then the
// reduction of the unit before it has been waited for. What is left is for who calls step() after
// the pass: the last units, and those whose input needs no gradient. Registers hooks that run after
// those of fully_shard().
void step_in_backward(Module& root, const FullySharded& sharded,
                      const std::shared_ptr<UnitOptimizers>& optimizers);

}  // namespace fsdp
