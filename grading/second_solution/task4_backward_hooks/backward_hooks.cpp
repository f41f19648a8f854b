#include <ATen/SequenceNumber.h>
#include <backward_hooks.h>
#include <nn/gradient_hook.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace fsdp {
namespace {

// For every call of a module in forward there is a Call object, which hooks in the graph keep
// alive. A call is finished in a backward pass when the pass has run all nodes that the call has
// made. A unit is finished when every call of its module whose graph still exists is finished.
class BackwardHooksImpl final : public BackwardHooks,
                                public std::enable_shared_from_this<BackwardHooksImpl> {
 public:
  void add(Module& module, std::shared_ptr<FlatParameter> unit) override;
  void set_requires_gradient_sync(bool sync) override { sync_ = sync; }
  void sync_gradients() override;

 private:
  struct Call {
    // The sequence number of the first autograd node that the call makes.
    uint64_t first_node;
    // Address of the tensor that the module gets as input, a view of the call's input. It is only
    // compared with other addresses.
    const void* inside{};
    bool recorded{};  // whether the call ran with GradMode enabled, so that autograd recorded it
    bool begun{};     // whether the gradient of the call's output has arrived in this backward pass
    bool back{};      // whether this backward pass has run all nodes that the call made
  };
  struct Unit {
    std::shared_ptr<FlatParameter> flat;
    std::vector<std::shared_ptr<Call>> in_forward;  // the module's running calls; innermost last
    // The calls of the module that have ended. Each pointer expires when the call's autograd graph
    // is destroyed.
    std::vector<std::weak_ptr<Call>> calls;
    // Number of forward calls without gradients that a backward pass may run again, with gradients,
    // as a checkpoint does.
    int to_record{};
    // How many of the `to_record` calls ran inside a forward call that records gradients.
    int hidden{};
    bool reduced{};  // whether this backward pass has reduced the unit's gradients
    bool read_in_backward{};

    // Returns whether this pass has begun to run the nodes of a call and has not run all of them,
    // so that it still needs the unit unsharded.
    bool is_needed() const;
    void forget_calls(bool graph_is_kept);
  };
  void begin_forward();
  bool is_recording() const;  // returns whether a forward call that records gradients is running
  at::Tensor enter_forward(const std::shared_ptr<Unit>& unit, const at::Tensor& input);
  at::Tensor leave_forward(const std::shared_ptr<Unit>& unit, const at::Tensor& output);
  void enter_backward(Unit& unit, Call& call);
  void collect(Unit& unit, size_t index);
  void leave_backward(Unit& unit, Call& call);
  void begin_backward();
  void post_backward(Unit& unit);
  void reduce(Unit& unit);
  void finish();
  void end_backward();
  void drop_broken_pass();

  std::vector<std::shared_ptr<Unit>> units_;
  std::shared_ptr<FlatParameter> reducing_;  // the unit whose reduce-scatter is under way
  // Expires when the outermost backward pass ends, also if it ends with an exception.
  std::weak_ptr<bool> pass_;
  int outermost_{};  // the number that autograd's engine gave to the outermost backward pass
  // false: the latest backward pass is running, or it has thrown and drop_broken_pass() has not
  // cleaned up after it.
  bool ended_{true};
  bool sync_{true};
};

void BackwardHooksImpl::add(Module& module, std::shared_ptr<FlatParameter> flat) {
  auto unit = std::make_shared<Unit>();
  unit->flat = std::move(flat);
  unit->read_in_backward = module.reads_parameters_in_backward();
  units_.push_back(unit);
  const auto self = shared_from_this();
  module.register_forward_pre_hook(
      [self, unit](Module&, const at::Tensor& input) { return self->enter_forward(unit, input); });
  module.register_forward_hook(
      [self, unit](Module&, const at::Tensor& output) { return self->leave_forward(unit, output); },
      /*always_call=*/true);

  // A parameter keeps its hook alive, and a unit keeps its parameters alive. So the hook has only
  // weak pointers to the unit and to this object; otherwise neither would ever be freed.
  for (size_t i = 0; i < unit->flat->parameters().size(); ++i) {
    const auto ready = [hooks = weak_from_this(), owner = std::weak_ptr(unit), i] {
      const auto alive = hooks.lock();
      const auto holder = owner.lock();
      if (alive && holder) alive->collect(*holder, i);
    };
    register_post_accumulate_grad_hook(unit->flat->parameters()[i].tensor, ready);
  }
}

// Call begin_forward() in each forward pre-hook. If a forward that records gradients begins outside
// of backward, begin_forward() forgets the earlier calls without gradients, such as those of an
// evaluation, because backward will not run them again.
void BackwardHooksImpl::begin_forward() {
  if (!at::GradMode::is_enabled() || torch::autograd::get_current_graph_task_id() >= 0 ||
      is_recording())
    return;
  for (const auto& unit : units_)
    unit->to_record = unit->hidden = 0;
}

bool BackwardHooksImpl::is_recording() const {
  return std::any_of(units_.begin(), units_.end(), [](const auto& unit) {
    return std::any_of(unit->in_forward.begin(), unit->in_forward.end(),
                       [](const auto& call) { return call->recorded; });
  });
}

// The module gets a view of its input. The gradient of this view is complete when the pass has run
// all nodes that the call has made, even if the input is also used outside the module. So the hook
// on the view calls leave_backward().
at::Tensor BackwardHooksImpl::enter_forward(const std::shared_ptr<Unit>& unit,
                                            const at::Tensor& input) {
  begin_forward();
  auto call = std::make_shared<Call>(Call{at::sequence_number::peek()});
  call->recorded = at::GradMode::is_enabled();
  unit->in_forward.push_back(call);
  if (!at::GradMode::is_enabled() || !input.defined() || !input.requires_grad()) return {};
  at::Tensor inside = input.view_as(input);
  call->inside = inside.unsafeGetTensorImpl();
  inside.register_hook([self = shared_from_this(), unit, call](const at::Tensor&) {
    self->leave_backward(*unit, *call);
  });
  return inside;
}

at::Tensor BackwardHooksImpl::leave_forward(const std::shared_ptr<Unit>& unit,
                                            const at::Tensor& output) {
  if (unit->in_forward.empty()) return {};
  const auto call = unit->in_forward.back();
  unit->in_forward.pop_back();
  drop_broken_pass();
  const bool in_pass = torch::autograd::get_current_graph_task_id() >= 0;
  // The forward call has resharded the unit, but a backward pass under way still needs the unit
  // unsharded.
  if (output.defined() && unit->is_needed()) unit->flat->unshard();
  if (output.defined() && !at::GradMode::is_enabled() && !in_pass) {
    ++unit->to_record;
    if (is_recording()) ++unit->hidden;
  }
  if (!at::GradMode::is_enabled() || !output.defined() || !output.requires_grad()) return {};
  if (in_pass && unit->to_record > 0) {
    --unit->to_record;
    unit->hidden = std::min(unit->hidden, unit->to_record);
    // In this pass, a checkpoint has run an earlier call again, and will run an inner pass over it.
    begin_backward();
  }
  unit->calls.push_back(call);
  const auto hook = [self = shared_from_this(), unit, call](const at::Tensor&) {
    self->enter_backward(*unit, *call);
  };
  // The hook is registered on a new view in two cases. If the output is a leaf, a hook on it would
  // stay after the graph is freed. If the module returns its input, a hook on it would run after
  // the hook that calls leave_backward().
  if (output.is_leaf() || output.unsafeGetTensorImpl() == call->inside) {
    at::Tensor other = output.view_as(output);
    other.register_hook(hook);
    return other;
  }
  // If the output is a view and the caller changes it in place, the output loses its hooks, but the
  // hooks of its base stay. So the hook is registered on the base, unless the base was made before
  // the call.
  if (output.is_view()) {
    const at::Tensor base(output._base());
    if (base.grad_fn() && base.grad_fn()->sequence_nr() >= call->first_node) {
      base.register_hook(hook);
      return {};
    }
  }
  output.register_hook(hook);
  return {};
}

void BackwardHooksImpl::enter_backward(Unit& unit, Call& call) {
  begin_backward();
  call.begun = true;
  if (unit.read_in_backward) unit.flat->unshard();
}

void BackwardHooksImpl::collect(Unit& unit, size_t index) {
  begin_backward();
  if (unit.reduced) {
    throw std::logic_error("unit " + unit.flat->unit() + " was reduced before the gradient of " +
                           unit.flat->parameters()[index].name + " came");
  }
  unit.flat->mark_gradient_ready(index);
}

// Runs when a pass has run all nodes of the call. If the input of the call requires no gradient,
// leave_backward() never runs for the call, and the end of the pass reduces the unit.
void BackwardHooksImpl::leave_backward(Unit& unit, Call& call) {
  begin_backward();
  const bool inner = torch::autograd::get_current_graph_task_id() != outermost_;
  // If an inner backward pass keeps its graph (retain_graph), a later pass runs through the nodes
  // of this call again.
  if (inner && torch::autograd::get_current_graph_task_keep_graph()) return;
  call.back = true;
  // In these two cases, the outermost backward pass reduces the unit's gradients at its end.
  if (inner || unit.hidden > 0) return;
  const bool all = std::all_of(unit.calls.begin(), unit.calls.end(), [](const auto& other) {
    const auto alive = other.lock();
    return !alive || alive->back;
  });
  if (all && !unit.reduced) post_backward(unit);
}

// Call begin_backward() in every hook of a backward pass; the first call in a pass begins the pass.
// When the pass ends, also by an exception, the engine destroys its callback, and so pass_ expires.
void BackwardHooksImpl::begin_backward() {
  if (!pass_.expired()) return;
  drop_broken_pass();
  ended_ = false;
  auto pass = std::make_shared<bool>();
  pass_ = pass;
  outermost_ = torch::autograd::get_current_graph_task_id();
  torch::autograd::Engine::get_default_engine().queue_callback(
      [self = shared_from_this(), pass] { self->end_backward(); });
}

void BackwardHooksImpl::drop_broken_pass() {
  if (ended_ || !pass_.expired()) return;
  for (const auto& unit : units_) {
    unit->flat->discard_unreduced_gradients();
    unit->reduced = false;
    unit->to_record = unit->hidden = 0;
    unit->forget_calls(/*graph_is_kept=*/false);
  }
  reducing_ = nullptr;
  ended_ = true;
  if (on_end_) on_end_();
}

bool BackwardHooksImpl::Unit::is_needed() const {
  return std::any_of(calls.begin(), calls.end(), [](const auto& other) {
    const auto call = other.lock();
    return call && call->begun && !call->back;
  });
}

// Forgets the calls through which the pass has run, unless the graph is kept: without its graph, no
// later pass can run through them again.
void BackwardHooksImpl::Unit::forget_calls(bool graph_is_kept) {
  std::erase_if(calls, [&](const auto& other) {
    const auto call = other.lock();
    if (!call || (call->begun && !graph_is_kept)) return true;
    call->begun = call->back = false;
    return false;
  });
}

// Reshards the unit before reduce(), so that the memory of the parameters is free when reduce()
// allocates memory.
void BackwardHooksImpl::post_backward(Unit& unit) {
  unit.flat->reshard();
  if (sync_) {
    reduce(unit);
  } else {
    unit.flat->widen_gradients();
  }
}

void BackwardHooksImpl::reduce(Unit& unit) {
  if (!unit.flat->trainable()) return;
  if (reducing_) reducing_->wait_for_reduction();
  reducing_ = unit.flat;
  reducing_->reduce_gradient();
  unit.reduced = true;
}

void BackwardHooksImpl::finish() {
  if (reducing_) reducing_->wait_for_reduction();
  reducing_ = nullptr;
  if (on_end_) on_end_();
}

void BackwardHooksImpl::end_backward() {
  for (auto unit = units_.rbegin(); unit != units_.rend(); ++unit) {
    if (!(*unit)->reduced) post_backward(**unit);
    (*unit)->flat->reshard();
    (*unit)->reduced = false;
    (*unit)->to_record = (*unit)->hidden = 0;
    (*unit)->forget_calls(torch::autograd::get_current_graph_task_keep_graph());
  }
  pass_.reset();
  ended_ = true;
  finish();
}

void BackwardHooksImpl::sync_gradients() {
  drop_broken_pass();
  std::for_each(units_.rbegin(), units_.rend(), [this](const auto& unit) { reduce(*unit); });
  for (const auto& unit : units_)
    unit->reduced = false;
  finish();
}

}  // namespace

std::shared_ptr<BackwardHooks> make_backward_hooks() {
  return std::make_shared<BackwardHooksImpl>();
}

}  // namespace fsdp
