#include <backward_hooks.h>
#include <nn/gradient_hook.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <ranges>
#include <stdexcept>
#include <utility>

namespace fsdp {

void BackwardHooks::add(Module& module, std::shared_ptr<FlatParameter> flat) {
  const auto unit = std::make_shared<Unit>();
  unit->flat = std::move(flat);
  units_.push_back(unit);
  const auto self = shared_from_this();

  module.register_forward_pre_hook([self](Module&, const torch::Tensor&) {
    self->drop_broken_pass();
    return torch::Tensor();
  });
  module.register_forward_hook([self, unit](Module&, const torch::Tensor&) {
    self->count_call(*unit);
    return torch::Tensor();
  });
  module.register_full_backward_pre_hook([self, unit](Module& here) {
    self->begin_backward();
    if (here.reads_parameters_in_backward()) unit->flat->unshard();
  });
  module.register_full_backward_hook([self, unit](Module&) {
    self->begin_backward();
    if (++unit->came_back >= unit->calls) self->post_backward(*unit);
  });

  for (size_t i = 0; i < unit->flat->parameters().size(); ++i) {
    const auto ready = [i, weak_self = weak_from_this(), weak_unit = std::weak_ptr(unit)] {
      const auto hooks = weak_self.lock();
      const auto owner = weak_unit.lock();
      if (!hooks || !owner) return;
      hooks->begin_backward();
      if (owner->reduced) {
        throw std::logic_error(
            "unit " + owner->flat->unit() + ": a gradient of parameter " +
            owner->flat->parameters()[i].name +
            " arrived after the unit was reduced; is it used outside its module?");
      }
      owner->flat->collect_gradient(i);
    };
    register_post_accumulate_grad_hook(unit->flat->parameters()[i].tensor, ready);
  }
}

BackwardHooks::Pass BackwardHooks::pass() const {
  if (!begun_) return Pass::none;
  return token_.expired() ? Pass::broken_off : Pass::running;
}

// A call that a hook makes inside a pass is not part of this pass.
void BackwardHooks::count_call(Unit& unit) {
  if (!at::GradMode::is_enabled() || pass() == Pass::running) return;
  if (std::exchange(unit.counted_in, passes_) != passes_) unit.calls = 0;
  ++unit.calls;
}

void BackwardHooks::begin_backward() {
  drop_broken_pass();
  if (begun_) return;
  const auto token = std::make_shared<const Token>();
  torch::autograd::Engine::get_default_engine().queue_callback(
      [self = shared_from_this(), token] { self->end_backward(); });
  token_ = token;
  begun_ = true;
}

void BackwardHooks::post_backward(Unit& unit) {
  unit.flat->reshard();
  if (unit.reduced || !sync_) return;
  unit.reduced = true;
  reduce(unit);
}

// Whether it reduces depends on nothing that may differ between ranks.
void BackwardHooks::reduce(Unit& unit) {
  if (!unit.flat->trainable()) return;
  wait_for_reduction();
  unit.flat->reduce_gradient();
  reducing_ = unit.flat;
}

void BackwardHooks::wait_for_reduction() {
  if (const auto unit = std::exchange(reducing_, nullptr)) unit->wait_for_reduction();
}

void BackwardHooks::end_backward() {
  for (const auto& unit : std::views::reverse(units_))
    post_backward(*unit);
  wait_for_reduction();
  if (torch::autograd::get_current_graph_task_keep_graph()) {
    // The calls of this pass may come back beside those of the next forward.
    for (const auto& unit : units_)
      if (unit->counted_in == passes_) ++unit->counted_in;
  }
  forget_pass();
}

void BackwardHooks::forget_pass() {
  for (const auto& unit : units_) {
    unit->came_back = 0;
    unit->reduced = false;
  }
  begun_ = false;
  token_.reset();
  ++passes_;
  if (on_end_) on_end_();
}

void BackwardHooks::drop_broken_pass() {
  if (pass() != Pass::broken_off) return;
  reducing_ = nullptr;
  for (const auto& unit : units_)
    unit->flat->abandon_gradient();
  forget_pass();
}

}  // namespace fsdp
