#include <nn/gradient_hook.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <stdexcept>

#include "backward_hooks_impl.h"

namespace fsdp {

std::shared_ptr<BackwardHooks> make_backward_hooks() {
  return std::make_shared<BackwardHooksImpl>();
}

void BackwardHooksImpl::add(Module& module, std::shared_ptr<FlatParameter> flat) {
  auto unit = std::make_shared<Unit>(Unit{std::move(flat)});
  units_.push_back(unit);
  auto self = shared_from_this();  // the graph may outlive everything else

  // Counts every call, even one that cannot come back because its input needs no gradient: while
  // one is missing the unit waits for the end of the pass, when no gradient can follow any more.
  // After forward, since a call that throws never comes back either.
  module.register_forward_hook([self, unit](Module&, const at::Tensor&) {
    self->drop_broken_pass();
    if (at::GradMode::is_enabled()) ++unit->calls;
    return at::Tensor();
  });
  module.register_full_backward_pre_hook([self, unit](Module& called) {
    self->begin_backward();
    if (called.reads_parameters_in_backward()) unit->flat->unshard();
  });
  module.register_full_backward_hook([self, unit](Module&) {
    if (++unit->came_back == unit->calls) self->post_backward(*unit);
  });

  // Weak: the unit holds its parameters, and a parameter that held the unit would never be freed.
  for (size_t i = 0; i < unit->flat->parameters().size(); ++i) {
    const auto ready = [this, weak_unit = std::weak_ptr(unit), i] {
      if (const auto alive = weak_unit.lock()) collect(*alive, i);  // then this object is, too
    };
    register_post_accumulate_grad_hook(unit->flat->parameters()[i].tensor, ready);
  }
}

void BackwardHooksImpl::collect(Unit& unit, size_t index) {
  begin_backward();
  // A second reduction would be a collective that the other ranks may not call: whether a gradient
  // comes late can differ between ranks.
  if (unit.reduced) {
    throw std::logic_error(
        "unit " + unit.flat->unit() + ": parameter " + unit.flat->parameters()[index].name +
        " got a gradient after the unit was reduced; use it in its own module alone, run backward "
        "over a forward before the next forward, and under autocast call "
        "at::autocast::clear_cache() between the two");
  }
  unit.flat->collect_gradient(index);
}

void BackwardHooksImpl::begin_backward() {
  const int pass = torch::autograd::get_current_graph_task_id();
  if (pass == pass_) return;
  drop_broken_pass();
  pass_ = pass;
  torch::autograd::Engine::get_default_engine().queue_callback(
      [self = shared_from_this()] { self->end_backward(); });
}

// The engine does not call the callback of a pass that throws. So a pass counts as broken off when
// it has begun, has not ended, and something else runs.
void BackwardHooksImpl::drop_broken_pass() {
  if (pass_ < 0 || pass_ == torch::autograd::get_current_graph_task_id()) return;
  for (const auto& unit : units_) {
    unit->flat->abandon_gradient();
    *unit = Unit{unit->flat};
  }
  reducing_ = nullptr;
  pass_ = -1;
  if (on_end_) on_end_();
}

void BackwardHooksImpl::post_backward(Unit& unit) {
  unit.flat->reshard();  // before its flat gradient is allocated
  if (!requires_gradient_sync_) unit.flat->widen_gradients();
  // Asks trainable(), which is the same on every rank, and not whether a gradient came.
  if (!requires_gradient_sync_ || !unit.flat->trainable()) return;
  wait_for_reduction();  // likewise
  unit.flat->reduce_gradient();
  reducing_ = unit.flat;
  unit.reduced = true;
}

void BackwardHooksImpl::wait_for_reduction() {
  if (reducing_) reducing_->wait_for_reduction();
  reducing_ = nullptr;
}

void BackwardHooksImpl::end_backward() {
  const bool graph_is_kept = torch::autograd::get_current_graph_task_keep_graph();
  for (auto unit = units_.rbegin(); unit != units_.rend(); ++unit) {
    if (!(*unit)->reduced) post_backward(**unit);
    (*unit)->flat->reshard();  // it may have been issued ahead again after its reduction
    (*unit)->reduced = false;
    (*unit)->came_back = 0;
    // Calls whose output was dropped are forgotten too, else later passes would wait for them.
    if (!graph_is_kept) (*unit)->calls = 0;
  }
  wait_for_reduction();
  pass_ = -1;
  if (on_end_) on_end_();
}

}  // namespace fsdp
