#include <strategies/fsdp/unit_optimizers.h>
#include <strategies/modules_of_units.h>

#include <utility>

namespace fsdp {

UnitOptimizers::UnitOptimizers(const std::vector<std::shared_ptr<FlatParameter>>& units,
                               const std::vector<ParameterGroup>& groups,
                               std::shared_ptr<Communicator> comm)
    : units_(units), comm_(std::move(comm)) {
  // To wait for readers in backward would be to wait for all-gathers that were issued ahead, by
  // ranks that wait here too.
  const auto without_readers = comm_->without_readers();
  for (const auto& unit : units_)
    optimizers_.push_back(make_sharded_optimizer(std::vector{unit}, groups, without_readers));
}

void UnitOptimizers::step() {
  for (size_t i = 0; i < units_.size(); ++i) {
    if (!units_[i]->sharded_gradient().defined()) continue;
    optimizers_[i]->step();
    units_[i]->drop_gradient();
  }
}

std::vector<StateRange> UnitOptimizers::state() {
  std::vector<StateRange> ranges;
  for (const auto& optimizer : optimizers_) {
    auto of_unit = optimizer->state();
    std::move(of_unit.begin(), of_unit.end(), std::back_inserter(ranges));
  }
  comm_->wait_for_readers();
  return ranges;
}

void step_in_backward(Module& root, const FullySharded& sharded,
                      const std::shared_ptr<UnitOptimizers>& optimizers) {
  for (Module* module : modules_of_units(root, sharded.layout())) {
    if (module == nullptr) continue;
    module->register_full_backward_hook([optimizers](Module&) { optimizers->step(); });
  }
}

}  // namespace fsdp
