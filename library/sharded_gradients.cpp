#include <backward_pass.h>
#include <memory/storage.h>
#include <part_mark.h>
#include <sharded_gradients.h>
#include <this_ranks_part.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

const char* const kNotReduced =
    " have not been reduced: run the last backward before a step outside of no_sync(); after a "
    "backward that threw, call zero_grad()";

const char* const kMisplaced =
    " were put into the module's parameters, where they are not reduced: reduce them over all "
    "ranks, and put this rank's elements into .grad of model.parameters()";

// Returns a trap for .grad of the leaf of `entry`.
at::Tensor trap_of_leaf(const c10::Storage& storage, const ShardedParameter& entry) {
  return view_of_storage(storage, 0, entry.sizes, entry.leaf.scalar_type());
}

// Returns a copy of `gradient` that is marked as this rank's part of the parameter's gradient
// (part_mark.h). It is a copy, because other leaves may get the same tensor. Returns `gradient`
// itself if it needs no mark or has the right one.
at::Tensor marked(const ShardedParameter& entry, const at::Tensor& gradient) {
  if (!gradient.defined() || !entry.part_of_gradient) return gradient;
  // If the gradient has come through views, its mark may lack the placement; then the function
  // returns a copy with a new mark.
  if (is_part(gradient) && description_of(gradient)->placement == entry.part_of_gradient->placement)
    return gradient;
  const at::Tensor copy = this_ranks_part(gradient).clone();
  mark_part(copy, entry.part_of_gradient);
  return copy;
}

}  // namespace

std::shared_ptr<ShardedGradients> ShardedGradients::create(const FullySharded& sharded,
                                                           std::shared_ptr<ShardedLeaves> leaves) {
  const std::shared_ptr<ShardedGradients> gradients(
      new ShardedGradients(sharded, std::move(leaves)));
  gradients->register_hooks();
  gradients->arm_traps();
  return gradients;
}

ShardedGradients::ShardedGradients(const FullySharded& sharded,
                                   std::shared_ptr<ShardedLeaves> leaves)
    : backward_hooks_(sharded.backward_hooks()),
      units_(sharded.units()),
      leaves_(std::move(leaves)),
      traps_(std::make_shared<ParameterTraps>(
          *leaves_, units_,
          [this](size_t parameter, bool replaced) { trap_is_gone(parameter, replaced); })) {
  std::vector<c10::Storage> not_reduced, misplaced;
  for (const auto& unit : units_) {
    not_reduced.push_back(trap_storage(*unit, kNotReduced));
    misplaced.push_back(trap_storage(*unit, kMisplaced));
  }
  for (const auto& entry : leaves_->entries())
    gradients_.emplace_back(entry.leaf, entry.whole, trap_of_leaf(not_reduced[entry.unit], entry),
                            trap_of_leaf(misplaced[entry.unit], entry));
}

const FlatParameter& ShardedGradients::unit_of(size_t parameter) const {
  return *units_[leaves_->entries()[parameter].unit];
}

// Registers hooks on the module's parameters and on the leaves, the tensors of model.parameters().
// The hooks run before autograd adds a gradient to .grad.
void ShardedGradients::register_hooks() {
  const auto hook = [this](at::Tensor tensor, auto function) {
    const bool trainable = tensor.requires_grad();
    // register_hook() refuses a tensor that requires no gradient, but a frozen parameter may be
    // unfrozen later.
    tensor.set_requires_grad(true);
    tensor.register_hook([weak = weak_from_this(), function](const at::Tensor& gradient) {
      const auto alive = weak.lock();
      return alive ? function(*alive, gradient) : gradient;
    });
    tensor.set_requires_grad(trainable);
  };
  for (size_t i = 0; i < gradients_.size(); ++i) {
    const ShardedParameter& entry = leaves_->entries()[i];
    hook(entry.whole, [i](ShardedGradients& self, const at::Tensor& gradient) {
      self.gradient_of_parameter(i, gradient);
      return gradient;
    });
    hook(entry.leaf, [i](ShardedGradients& self, const at::Tensor& gradient) {
      return self.gradient_of_leaf(i, gradient);
    });
  }
}

void ShardedGradients::set_sync(bool sync) {
  sync_ = sync;
  backward_hooks_->set_requires_gradient_sync(sync);
}

void ShardedGradients::move_gradients_to_leaves() {
  if (std::exchange(moves_gradients_, true)) return;
  for (ParameterGradient& gradient : gradients_)
    gradient.give();
  if (!under_way_) end_pass();
}

void ShardedGradients::gradient_of_parameter(size_t parameter, const at::Tensor& gradient) {
  const ShardedParameter& entry = leaves_->entries()[parameter];
  if (at::GradMode::is_enabled()) {
    throw std::logic_error("backward: parameter " + entry.name +
                           " is sharded, so backward cannot be differentiated: create_graph has to "
                           "be off");
  }
  on_backward_begin();
  if (idle_) check_not_added(entry);
  if (gradient.defined() && gradient.layout() != at::kStrided) {
    throw std::logic_error(
        "backward: the gradient of parameter " + entry.name +
        " is sparse, which can't be sharded; make its layer without .sparse(true)");
  }
  traps_->make_room(parameter);
}

// A tensor hook on the leaf, which is this rank's tensor in model.parameters(). It runs if the user
// computes a part of the loss from that tensor, such as a penalty on the weights. Autograd adds
// `gradient` to .grad of the leaf next, so this function takes the trap (a tensor that throws when
// it is read) out of .grad.
at::Tensor ShardedGradients::gradient_of_leaf(size_t parameter, const at::Tensor& gradient) {
  gradients_[parameter].gradient_of_leaf();
  return marked(leaves_->entries()[parameter], gradient);
}

// Throws if the parameter gets a gradient in .grad inside a pass of autograd::grad(). Such a pass
// reduces nothing, so a gradient that a backward() inside it adds to .grad would be that of this
// rank only.
void ShardedGradients::check_not_added(const ShardedParameter& entry) {
  const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(entry.whole);
  if (!gradient_target(accumulator.get()).grad) return;
  throw std::logic_error(
      "autograd::grad(): a backward() inside it, as of a checkpoint, has a "
      "gradient for parameter " +
      entry.name +
      ", which is sharded, and nothing would reduce it; run backward() in place of "
      "grad(), or checkpoint the module by checkpoint_activations()");
}

// Begins a pass, unless one is under way: a pass inside a pass, such as that of a checkpointed
// module, belongs to the outer pass.
void ShardedGradients::on_backward_begin() {
  if (under_way_) return;
  const bool idle = !adds_up();
  for (size_t i = 0; i < gradients_.size(); ++i)
    see_users_changes(i);
  disarm_traps();
  begin_pass();
  // The callback for a pass that does not throw is empty, because ShardedModelImpl calls end_pass()
  // at the end of such a pass.
  on_backward_end([] {},
                  [weak = weak_from_this()] {
                    const auto alive = weak.lock();
                    if (alive && alive->under_way_) alive->break_off();
                  });
  if (idle) backward_hooks_->set_requires_gradient_sync(false);
  under_way_ = true;
  idle_ = idle;
}

void ShardedGradients::begin_pass() {
  std::vector<bool> has_local_sum(units_.size());
  for (size_t i = 0; i < gradients_.size(); ++i)
    if (gradients_[i].local_sum() == LocalSum::kept)
      has_local_sum[leaves_->entries()[i].unit] = true;
  for (size_t unit = 0; unit < units_.size(); ++unit)
    if (!has_local_sum[unit]) units_[unit]->discard_unreduced_gradients();
  for (size_t i = 0; i < gradients_.size(); ++i)
    gradients_[i].begin_pass(leaves_->entries()[i].requires_grad, unit_of(i).has_gradient());
}

void ShardedGradients::leave_pass() {
  under_way_ = false;
  if (std::exchange(idle_, false)) backward_hooks_->set_requires_gradient_sync(sync_);
}

// Returns whether this pass adds gradients of parameters to .grad. A pass of autograd::grad() does
// not: it returns gradients to its caller. Throws std::logic_error if such a pass is asked for the
// gradient of a sharded parameter.
bool ShardedGradients::adds_up() const {
  bool adds_up = gradient_target(nullptr).grad;
  for (const ShardedParameter& entry : leaves_->entries()) {
    const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(entry.whole);
    const GradientTarget at = gradient_target(accumulator.get());
    if (at.caller) refuse_gradient_by_name(entry.name);
    adds_up |= at.grad;
  }
  return adds_up;
}

// Updates the state of the gradient if the user has changed .grad of the leaf since the last pass.
// Throws if the user has put a gradient into .grad of the module's parameter, or has given the leaf
// other data.
void ShardedGradients::see_users_changes(size_t parameter) {
  const ShardedParameter& entry = leaves_->entries()[parameter];
  traps_->check_in_place(parameter);
  if (entry.whole.grad().defined() && !traps_->is_trap(parameter)) {
    throw std::logic_error("backward: a gradient was put into .grad of the module's parameter " +
                           entry.name +
                           ", where it is not reduced; drop it by model.zero_grad(), and put what "
                           "this rank owns of it into .grad of model.parameters()");
  }
  if (leaves_->has_replaced_data(entry)) {
    throw std::logic_error("backward: parameter " + entry.name +
                           " was changed since its forward, by set_data() of model.parameters(); "
                           "run backward before the change, or run forward again");
  }
  gradients_[parameter].see_users_changes();
}

// Ends a pass that has thrown: reshards every unit, which also waits for its collectives, because
// other models may share the communicator; drops the gradients that are not reduced; and marks the
// gradients of the pass as broken.
void ShardedGradients::break_off() {
  leave_pass();
  disarm_traps();
  try {
    for (const auto& unit : units_) {
      unit->reshard();
      unit->discard_unreduced_gradients();
      if (moves_gradients_) unit->clear_sharded_gradient();
    }
  } catch (const std::exception&) {
    // A collective has failed. The error is not thrown here, because every later collective throws
    // it again.
  }
  for (ParameterGradient& gradient : gradients_)
    gradient.break_off();
  arm_traps();
}

void ShardedGradients::end_pass() {
  const at::NoGradGuard no_grad;
  leave_pass();
  any_unit_waits_ =
      std::ranges::any_of(units_, [](const auto& unit) { return unit->has_gradient(); });
  std::vector<at::Tensor> of_units(units_.size());
  for (size_t unit = 0; moves_gradients_ && unit < units_.size(); ++unit) {
    of_units[unit] = units_[unit]->sharded_gradient();
    units_[unit]->clear_sharded_gradient();
  }
  for (size_t i = 0; i < gradients_.size(); ++i)
    end_pass(i, of_units[leaves_->entries()[i].unit]);
  arm_traps();
}

void ShardedGradients::end_pass(size_t parameter, const at::Tensor& of_unit) {
  const ShardedParameter& entry = leaves_->entries()[parameter];
  ParameterGradient& gradient = gradients_[parameter];
  const bool unit_waits = unit_of(parameter).has_gradient();
  if (unit_waits && entry.whole.grad().defined() && !traps_->is_trap(parameter))
    gradient.keep_local_sum();
  if (!gradient.show_for_pass(entry.requires_grad)) return;
  if (of_unit.defined()) add(parameter, of_unit);
  // If any unit has gradients that are not reduced yet, .grad of this leaf becomes a trap (a tensor
  // that throws when it is read), even if its own unit has reduced this gradient.
  if (unit_waits || (any_unit_waits_ && entry.leaf.grad().defined())) gradient.hide();
}

// Adds the parameter's elements of a unit's reduced gradient to .grad of the leaf, this rank's
// tensor in model.parameters(). Calls the hooks that the user has registered on the leaf, as the
// engine would.
void ShardedGradients::add(size_t parameter, const at::Tensor& of_unit) {
  const ShardedParameter& entry = leaves_->entries()[parameter];
  // `part` must not be a view to autograd, because Optimizer::zero_grad() detaches gradients in
  // place, which a view does not allow.
  at::Tensor part = view_of_storage(of_unit.storage(), of_unit.storage_offset() + entry.offset,
                                    entry.leaf.sizes(), of_unit.scalar_type());
  mark_part(part, entry.part_of_gradient);
  for (const auto& hook : torch::autograd::impl::hooks(entry.leaf))
    part = (*hook)({part}).at(0);
  at::Tensor& gradient = entry.leaf.mutable_grad();
  if (gradient.defined()) {
    gradient.add_(part);
  } else {
    gradient = std::move(part);
  }
  mark_part(gradient, entry.part_of_gradient);
  if (const auto& hook = torch::autograd::impl::post_acc_grad_hooks(entry.leaf))
    (*hook)(entry.leaf);
}

// Called when the user has dropped the trap (a tensor whose values cannot be read) in .grad of the
// module's parameter. If `replaced` is true, the user has put a gradient in the place of the trap.
void ShardedGradients::trap_is_gone(size_t parameter, bool replaced) {
  if (replaced) {
    gradients_[parameter].misplace();
  } else {
    gradients_[parameter].drop();
  }
  drop_in_unit(parameter);
}

// Sets the parameter's elements of the unit's reduced gradient to zero, because the user has
// dropped the gradient.
void ShardedGradients::drop_in_unit(size_t parameter) {
  const at::NoGradGuard no_grad;
  const ShardedParameter& entry = leaves_->entries()[parameter];
  const at::Tensor& of_unit = unit_of(parameter).sharded_gradient();
  if (of_unit.defined()) of_unit.narrow(0, entry.offset, entry.leaf.numel()).zero_();
}

void ShardedGradients::zero_grad() {
  run_deferred_failures();
  disarm_traps();
  for (const auto& unit : units_) {
    unit->discard_unreduced_gradients();
    unit->clear_sharded_gradient();
  }
  for (ParameterGradient& gradient : gradients_)
    gradient.zero_grad();
  arm_traps();
}

void ShardedGradients::check_complete() const {
  for (size_t i = 0; i < gradients_.size(); ++i)
    if (gradients_[i].is_hidden())
      throw std::logic_error("the gradients of unit " + unit_of(i).unit() + kNotReduced);
}

}  // namespace fsdp
