#include <nn/gradient_hook.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <stdexcept>

#include "backward_hooks_impl.h"

namespace fsdp {
namespace {

bool in_backward() {
  return torch::autograd::get_current_graph_task_id() >= 0;
}

}  // namespace

std::shared_ptr<BackwardHooks> make_backward_hooks() {
  return std::make_shared<BackwardHooksImpl>();
}

void BackwardHooksImpl::add(Module& module, std::shared_ptr<FlatParameter> flat) {
  auto unit = std::make_shared<Unit>(Unit{std::move(flat)});
  units_.push_back(unit);
  auto self = shared_from_this();  // the module's hooks own this object

  module.register_forward_pre_hook([self](Module& called, const at::Tensor&) {
    self->begin_call(called);
    return at::Tensor();
  });
  module.register_forward_hook(
      [self, unit](Module& called, const at::Tensor& output) {
        self->end_call(called, *unit, /*returned=*/output.defined());
        return at::Tensor();
      },
      /*always_call=*/true);
  module.register_full_backward_pre_hook([self, unit](Module& called) {
    self->begin_backward();
    if (called.reads_parameters_in_backward()) self->pre_backward(*unit);
  });
  module.register_full_backward_hook([self, unit](Module&) { self->come_back(*unit); });

  // Weak: the unit holds its parameters, and a parameter that held the unit would never be freed.
  for (size_t i = 0; i < unit->flat->parameters().size(); ++i) {
    const auto ready = [this, weak_unit = std::weak_ptr(unit), i] {
      if (const auto alive = weak_unit.lock()) collect(*alive, i);  // then this object is, too
    };
    register_post_accumulate_grad_hook(unit->flat->parameters()[i].tensor, ready);
  }
}

// If a forward begins that will have a backward pass, earlier calls without gradients, such as
// those of an evaluation, will not run again.
void BackwardHooksImpl::begin_call(Module& module) {
  if (!at::GradMode::is_enabled()) return;
  if (recorded_.empty() && !in_backward())
    for (const auto& unit : units_)
      unit->unrecorded = unit->inside = 0;
  recorded_.insert(module.current_call());
}

// Counts every call, even one that cannot come back because its input needs no gradient: while one
// call is missing, the unit waits for the end of the pass, when no gradient can follow any more.
// Counts after forward, because a call that throws never comes back either.
void BackwardHooksImpl::end_call(Module& module, Unit& unit, bool returned) {
  recorded_.erase(module.current_call());
  drop_broken_passes();
  if (!returned) return;
  if (unit.unsharded_by > 0) unit.flat->unshard();  // the pass around this call still reads it
  if (at::GradMode::is_enabled()) {
    ++unit.forward_calls;
    if (in_backward() && unit.unrecorded > 0) run_again(unit);
  } else if (!in_backward()) {
    ++unit.unrecorded;
    if (!recorded_.empty()) ++unit.inside;
  }
}

// A user's own checkpoint runs a call again, this time with gradients recorded, and then an inner
// pass over it. The outer pass around both may not have reached any unit yet, so it begins here.
void BackwardHooksImpl::run_again(Unit& unit) {
  --unit.unrecorded;
  unit.inside = std::min(unit.inside, unit.unrecorded);
  begin_backward();
}

// The engine numbers its passes, and drops the callbacks of a pass that throws. So a pass has
// broken off when its callback is gone. A pass that begins while another pass is under way is
// inside the other pass.
BackwardHooksImpl::Pass& BackwardHooksImpl::begin_backward() {
  drop_broken_passes();
  const int number = torch::autograd::get_current_graph_task_id();
  if (passes_.empty() || passes_.back().number != number) {
    auto held = std::make_shared<bool>();
    passes_.push_back({number, held});
    torch::autograd::Engine::get_default_engine().queue_callback(
        [self = shared_from_this(), held] { self->end_backward(); });
  }
  return passes_.back();
}

void BackwardHooksImpl::pre_backward(Unit& unit) {
  if (unit.unsharded_by == 0) unit.unsharded_by = passes_.size();
  unit.flat->unshard();
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
  unit.flat->mark_gradient_ready(index);
}

void BackwardHooksImpl::come_back(Unit& unit) {
  const int64_t backward_calls = ++begin_backward().backward_calls[&unit];
  if (backward_calls == unit.forward_calls && !more_may_come(unit)) post_backward(unit);
}

// Returns whether the unit may get more gradients although all its calls have come back. A
// checkpoint may run another call again. If an inner pass keeps its graph, the outer pass may go
// over this graph too. And autograd::grad() in an inner pass adds nothing to .grad: the outer pass
// adds what it has found.
bool BackwardHooksImpl::more_may_come(const Unit& unit) const {
  if (passes_.size() == 1) return unit.inside > 0;
  return unit.unrecorded > 0 || torch::autograd::get_current_graph_task_keep_graph() ||
         !torch::autograd::get_current_graph_task_exec_info()->empty();
}

void BackwardHooksImpl::post_backward(Unit& unit) {
  reshard(unit);  // before its flat gradient is allocated
  if (!requires_gradient_sync_) unit.flat->widen_gradients();
  // Asks trainable(), which is the same on every rank, and not whether a gradient came.
  if (!requires_gradient_sync_ || !unit.flat->trainable()) return;
  wait_for_reduction();  // of another unit, also before the flat gradient is allocated
  unit.flat->reduce_gradient();
  reducing_ = unit.flat;
  unit.reduced = true;
}

void BackwardHooksImpl::reshard(Unit& unit) {
  unit.unsharded_by = 0;
  unit.flat->reshard();
}

void BackwardHooksImpl::wait_for_reduction() {
  if (reducing_) reducing_->wait_for_reduction();
  reducing_ = nullptr;
}

void BackwardHooksImpl::end_backward() {
  drop_broken_passes();  // inside this one
  const bool graph_is_kept = torch::autograd::get_current_graph_task_keep_graph();
  const Pass pass = std::move(passes_.back());
  passes_.pop_back();
  if (passes_.empty()) {
    end_outermost_pass(graph_is_kept);
  } else {
    end_inner_pass(pass, graph_is_kept);
  }
}

// The gradients of the inner pass stay where they are: the outermost pass reduces them.
void BackwardHooksImpl::end_inner_pass(const Pass& pass, bool graph_is_kept) {
  for (const auto& [unit, backward_calls] : pass.backward_calls)
    if (!graph_is_kept) unit->forward_calls -= backward_calls;
  for (const auto& unit : units_)
    if (unit->unsharded_by > passes_.size()) reshard(*unit);
}

void BackwardHooksImpl::end_outermost_pass(bool graph_is_kept) {
  for (auto unit = units_.rbegin(); unit != units_.rend(); ++unit) {
    if (!(*unit)->reduced) post_backward(**unit);
    reshard(**unit);  // it may have been issued ahead again after its reduction
    (*unit)->reduced = false;
    (*unit)->unrecorded = (*unit)->inside = 0;
    // Also forgets calls whose output was dropped, because later passes would wait for them.
    if (!graph_is_kept) (*unit)->forward_calls = 0;
  }
  wait_for_reduction();
  if (on_end_) on_end_();
}

// If only an inner pass has broken off, the outer one continues with the gradients that the inner
// one has found, as it would in one process.
void BackwardHooksImpl::drop_broken_passes() {
  if (passes_.empty()) return;
  std::erase_if(passes_, [](const Pass& pass) { return pass.under_way.expired(); });
  if (!passes_.empty()) return;
  for (const auto& unit : units_) {
    unit->flat->discard_unreduced_gradients();
    *unit = Unit{unit->flat};
  }
  reducing_ = nullptr;
  if (on_end_) on_end_();
}

}  // namespace fsdp
