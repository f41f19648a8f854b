#include <backward_hooks.h>
#include <nn/gradient_hook.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

namespace fsdp {

void BackwardHooks::add(Module& module, std::shared_ptr<FlatParameter> flat) {
  auto unit = std::make_shared<Unit>(Unit{std::move(flat)});
  units_.push_back(unit);
  auto self = shared_from_this();  // the graph may outlive everything else

  module.register_forward_pre_hook([unit](Module&, const at::Tensor& input) {
    if (at::GradMode::is_enabled() && input.requires_grad()) ++unit->calls;
    return at::Tensor();
  });
  module.register_full_backward_pre_hook([self, unit](Module&) {
    self->begin();
    unit->flat->unshard();
  });
  module.register_full_backward_hook([self, unit](Module&) {
    if (--unit->calls <= 0) self->finish(*unit);
  });

  // Weak: the parameters are held by the unit that these hooks would hold.
  std::weak_ptr<Unit> weak_unit = unit;
  std::weak_ptr<BackwardHooks> weak_self = self;
  for (size_t i = 0; i < unit->flat->parameters().size(); ++i) {
    register_post_accumulate_grad_hook(unit->flat->parameters()[i].tensor,
                                       [weak_self, weak_unit, i] {
                                         const auto hooks = weak_self.lock();
                                         const auto owner = weak_unit.lock();
                                         if (!hooks || !owner) return;
                                         hooks->begin();
                                         owner->flat->collect_gradient(i);
                                       });
  }
}

void BackwardHooks::begin() {
  const int task = torch::autograd::get_current_graph_task_id();
  if (task == graph_task_) return;
  graph_task_ = task;
  torch::autograd::Engine::get_default_engine().queue_callback(
      [self = shared_from_this()] { self->end(); });
}

void BackwardHooks::finish(Unit& unit) {
  if (unit.flat->trainable()) {
    wait_for_reduction();
    unit.flat->reduce_gradient();
    reducing_ = unit.flat;
    unit.reduced = true;
  }
  unit.flat->reshard();
}

void BackwardHooks::wait_for_reduction() {
  if (reducing_) reducing_->wait_for_reduction();
  reducing_ = nullptr;
}

void BackwardHooks::end() {
  for (auto unit = units_.rbegin(); unit != units_.rend(); ++unit) {
    if (!(*unit)->reduced || (*unit)->flat->has_gradient()) finish(**unit);
    (*unit)->flat->reshard();
    (*unit)->reduced = false;
    (*unit)->calls = 0;
  }
  wait_for_reduction();
  if (on_end_) on_end_();
}

}  // namespace fsdp
