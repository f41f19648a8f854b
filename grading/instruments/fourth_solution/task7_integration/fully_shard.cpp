#include <forward_hooks.h>
#include <fully_shard.h>
#include <ignored.h>

#include <optional>
#include <utility>

namespace fsdp {
namespace {

std::vector<UnitPlan> plan_of(Module& root, const FullyShardOptions& options) {
  std::vector<UnitPlan> plan = options.ignored.empty()
                                   ? plan_units(root, options.wrap)
                                   : plan_units(root, options.wrap, options.ignored);
  if (options.keep_fp32) keep_in_fp32(plan, root, options.keep_fp32);
  for (const UnitPlan& unit : plan)
    check_fp32(unit.name, unit.parameters);
  return plan;
}

// A unit that is unsharded while somebody looks at it, and sharded afterwards.
class Opened {
 public:
  explicit Opened(const std::shared_ptr<FlatParameter>& unit) : unit_(unit) { unit_->unshard(); }
  ~Opened() { unit_->reshard(); }
  Opened(const Opened&) = delete;  // it is closed once

  bool is(const std::shared_ptr<FlatParameter>& unit) const { return unit == unit_; }

 private:
  std::shared_ptr<FlatParameter> unit_;
};

}  // namespace

// What can be refused is refused before the first FlatParameter takes the parameters over.
std::shared_ptr<FullySharded> fully_shard(Module& root, std::shared_ptr<Communicator> comm,
                                          const FullyShardOptions& options) {
  auto prefetcher = std::make_shared<Prefetcher>(options.limit);
  const std::vector<UnitPlan> plan = plan_of(root, options);
  auto model = std::make_shared<FullySharded>();
  model->layout_ = plan_layout(root, plan, comm->world_size());
  model->backward_hooks_ = std::make_shared<BackwardHooks>();
  model->backward_hooks_->on_end([prefetcher] { prefetcher->end_backward(); });
  for (const auto& [name, module, parameters] : plan) {
    model->units_.push_back(
        std::make_shared<FlatParameter>(name, parameters, comm, options.materialize));
  }
  for (size_t i = 0; i < plan.size(); ++i) {
    Module& module = *plan[i].module;
    const bool is_root = &module == &root;
    register_forward_hooks(module, model->units_[i], options.reshard_after_forward && !is_root);
    model->backward_hooks_->add(module, model->units_[i]);
    if (!is_root) prefetcher->add(module, model->units_[i]);
  }
  prefetcher->add_root(root);
  model->comm_ = std::move(comm);
  model->prefetcher_ = std::move(prefetcher);
  return model;
}

void FullySharded::full_parameters(const ParameterVisitor& visit) const {
  std::vector<size_t> next_of_unit(units_.size());
  std::optional<Opened> opened;
  for (const auto& place : layout_.parameters) {
    const auto& unit = units_[place.unit];
    if (!opened || !opened->is(unit)) {
      opened.reset();  // before the next is gathered
      for (const auto& other : units_) {
        if (other != unit) other->reshard();
      }
      opened.emplace(unit);
    }
    const at::Tensor& whole = unit->parameters()[next_of_unit[place.unit]++].tensor;
    if (comm_->global_rank() == 0) visit(place.name, whole.detach().cpu());
  }
}

}  // namespace fsdp
