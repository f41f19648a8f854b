#include <backward_hooks.h>
#include <c10/util/irange.h>
#include <nn/gradient_hook.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <ranges>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace fsdp {

void BackwardHooks::add(Module& module, std::shared_ptr<FlatParameter> flat) {
  const auto unit = std::make_shared<Unit>(Unit{std::move(flat)});
  units_.push_back(unit);
  const auto self = shared_from_this();

  module.register_forward_pre_hook([self](Module&, const torch::Tensor&) {
    self->drop_broken_pass();
    return torch::Tensor();
  });
  // Does not run for a call that throws: nothing of it can come back.
  module.register_forward_hook([unit](Module&, const torch::Tensor&) {
    if (at::GradMode::is_enabled()) ++unit->calls;
    return torch::Tensor();
  });
  module.register_full_backward_pre_hook([self, unit](Module& running) {
    self->begin_backward();
    if (running.reads_parameters_in_backward()) unit->flat->unshard();
  });
  module.register_full_backward_hook([self, unit](Module&) {
    self->begin_backward();
    self->came_back(*unit);
  });

  // The unit owns its parameters. So that they do not own it, their hooks hold it weakly.
  for (const auto i : c10::irange(unit->flat->parameters().size())) {
    register_post_accumulate_grad_hook(
        unit->flat->parameters()[i].tensor,
        [weak_self = weak_from_this(), weak_unit = std::weak_ptr(unit), i] {
          const auto hooks = weak_self.lock();
          const auto owner = weak_unit.lock();
          if (!hooks || !owner) return;
          hooks->begin_backward();
          hooks->collect(*owner, i);
        });
  }
}

void BackwardHooks::drop_broken_pass() {
  if (!pass_) return;
  // The engine may run another pass inside this one, or a forward.
  const int running = torch::autograd::get_current_graph_task_id();
  if (running != -1 && (running == pass_->number || !pass_->alive.expired())) return;
  for (const auto& unit : units_) {
    unit->calls = 0;
    unit->flat->abandon_gradient();
  }
  pass_.reset();
  if (on_end_) on_end_();
}

void BackwardHooks::begin_backward() {
  drop_broken_pass();
  if (pass_) return;
  // The engine destroys the callback with the pass, also if it has not called it.
  const auto alive = std::make_shared<char>();
  torch::autograd::Engine::get_default_engine().queue_callback(
      [self = shared_from_this(), alive] { self->end_backward(); });
  pass_ = Pass{.number = torch::autograd::get_current_graph_task_id(), .alive = alive};
}

void BackwardHooks::collect(Unit& unit, size_t parameter) {
  if (pass_->reduced.contains(&unit)) {
    std::ostringstream message;
    message << "unit " << unit.flat->unit() << ": the gradient of "
            << unit.flat->parameters()[parameter].name
            << " arrives after the unit was reduced; is it used outside of the unit's module?";
    throw std::logic_error(message.str());
  }
  unit.flat->collect_gradient(parameter);
}

void BackwardHooks::came_back(Unit& unit) {
  if (++pass_->came_back[&unit] == unit.calls) post_backward(unit);
}

void BackwardHooks::post_backward(Unit& unit) {
  unit.flat->reshard();  // frees, before the reduction allocates
  if (!requires_gradient_sync_ || !unit.flat->trainable()) return;
  if (!pass_->reduced.insert(&unit).second) return;
  wait_for_reduction();
  unit.flat->reduce_gradient();
  pass_->reducing = unit.flat;
}

void BackwardHooks::wait_for_reduction() {
  if (const auto unit = std::exchange(pass_->reducing, nullptr)) unit->wait_for_reduction();
}

void BackwardHooks::end_backward() {
  for (const auto& unit : units_ | std::views::reverse)
    post_backward(*unit);  // does not reduce again
  wait_for_reduction();
  if (!torch::autograd::get_current_graph_task_keep_graph())
    for (const auto& unit : units_)
      unit->calls = 0;
  pass_.reset();
  if (on_end_) on_end_();
}

}  // namespace fsdp
