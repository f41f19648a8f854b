#include <backward_hooks.h>
#include <nn/gradient_hook.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <ranges>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

constexpr int kNoPass = -1;

int current_pass() {
  return torch::autograd::get_current_graph_task_id();
}

}  // namespace

// A call is counted when it has returned: one that throws is in no graph.
void BackwardHooks::Calls::returned() {
  if (std::exchange(of_an_earlier_pass_, false)) made_ = 0;
  ++made_;
}

bool BackwardHooks::Calls::last_came_back() {
  return ++came_back_ == made_;
}

void BackwardHooks::Calls::end_pass(bool graph_is_kept) {
  came_back_ = 0;
  if (!graph_is_kept) of_an_earlier_pass_ = true;
}

void BackwardHooks::Pass::reduce(const std::shared_ptr<FlatParameter>& unit) {
  wait();
  unit->reduce_gradient();
  in_flight_ = unit;
}

void BackwardHooks::Pass::wait() {
  if (const auto unit = std::exchange(in_flight_, nullptr)) unit->wait_for_reduction();
}

void BackwardHooks::add(Module& module, std::shared_ptr<FlatParameter> flat) {
  const auto unit = units_.emplace_back(std::make_shared<Unit>(Unit{.flat = std::move(flat)}));
  hook_forward(module, unit);
  hook_backward(module, unit);
  hook_parameters(unit);
}

void BackwardHooks::hook_forward(Module& module, const std::shared_ptr<Unit>& unit) {
  module.register_forward_pre_hook([self = shared_from_this()](Module&, const torch::Tensor&) {
    // Inside a pass, a hook runs this forward; outside, no pass can still be under way.
    if (current_pass() == kNoPass) self->drop_broken_pass();
    return torch::Tensor();
  });
  module.register_forward_hook([unit](Module&, const torch::Tensor&) {
    if (at::GradMode::is_enabled()) unit->calls.returned();
    return torch::Tensor();
  });
}

void BackwardHooks::hook_backward(Module& module, const std::shared_ptr<Unit>& unit) {
  module.register_full_backward_pre_hook([self = shared_from_this(), unit](Module& called) {
    self->begin_backward();
    if (!called.reads_parameters_in_backward()) return;
    unit->flat->unshard();
  });
  module.register_full_backward_hook([self = shared_from_this(), unit](Module&) {
    self->begin_backward();
    if (unit->calls.last_came_back() && !unit->reduced) self->post_backward(*unit);
  });
}

// The unit owns its parameters, so what they hold may own neither it nor this object.
void BackwardHooks::hook_parameters(const std::shared_ptr<Unit>& unit) {
  for (size_t i = 0; i < unit->flat->parameters().size(); ++i) {
    register_post_accumulate_grad_hook(
        unit->flat->parameters()[i].tensor,
        [weak_self = weak_from_this(), weak_unit = std::weak_ptr(unit), i] {
          const auto self = weak_self.lock();
          const auto alive = weak_unit.lock();
          if (self && alive) self->collect(*alive, i);
        });
  }
}

void BackwardHooks::collect(Unit& unit, size_t index) {
  begin_backward();
  if (unit.reduced) {
    throw std::logic_error("unit '" + unit.flat->unit() + "' was reduced before the gradient of '" +
                           unit.flat->parameters()[index].name +
                           "' arrived: the parameter is also used outside its module");
  }
  unit.flat->collect_gradient(index);
}

void BackwardHooks::begin_backward() {
  const int id = current_pass();
  if (pass_ && pass_->id() == id) return;
  drop_broken_pass();
  torch::autograd::Engine::get_default_engine().queue_callback([self = shared_from_this(), id] {
    if (self->pass_ && self->pass_->id() == id) self->end_backward();
  });
  pass_.emplace(id);
}

// Frees before it allocates: first the parameters, then the flat gradient of the unit before.
void BackwardHooks::post_backward(Unit& unit) {
  unit.flat->reshard();
  if (!sync_) return;
  unit.reduced = true;
  if (unit.flat->trainable()) pass_->reduce(unit.flat);
}

void BackwardHooks::wait_for_reduction() {
  pass_->wait();
}

void BackwardHooks::end_backward() {
  for (const auto& unit : units_ | std::views::reverse) {
    if (!unit->reduced) post_backward(*unit);
  }
  for (const auto& unit : units_)
    unit->flat->reshard();
  wait_for_reduction();
  forget_pass(torch::autograd::get_current_graph_task_keep_graph());
}

void BackwardHooks::drop_broken_pass() {
  if (!pass_) return;
  for (const auto& unit : units_)
    unit->flat->abandon_gradient();
  forget_pass(/*graph_is_kept=*/false);
}

void BackwardHooks::forget_pass(bool graph_is_kept) {
  for (const auto& unit : units_) {
    unit->reduced = false;
    unit->calls.end_pass(graph_is_kept);
  }
  pass_.reset();
  if (on_end_) on_end_();
}

}  // namespace fsdp
