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

// For every call of a module in forward there is an object, which the graph holds. A call has come
// back when backward has run all of its nodes. A unit is finished when every call whose graph still
// exists has come back.
class BackwardHooksImpl final : public BackwardHooks,
                                public std::enable_shared_from_this<BackwardHooksImpl> {
 public:
  void add(Module& module, std::shared_ptr<FlatParameter> unit) override;
  void set_requires_gradient_sync(bool sync) override { sync_ = sync; }
  void sync_gradients() override;

 private:
  struct Call {
    uint64_t first_node;   // the number of the graph's next node when the call began
    const void* inside{};  // the view of its input that the module works on, to compare with
    bool recorded{};       // whether the call ran with gradients recorded
    bool begun{};          // whether the gradient of its output has arrived in this pass
    bool back{};           // whether all of the call has come back in this pass
  };
  struct Unit {
    std::shared_ptr<FlatParameter> flat;
    std::vector<std::shared_ptr<Call>> in_forward;  // calls under way; the innermost last
    std::vector<std::weak_ptr<Call>> calls;         // ended calls whose graph may still exist
    int to_record{};  // calls without gradients, which backward may run again and record
    int hidden{};     // those of the `to_record` calls that ran inside a call with gradients
    bool reduced{};   // whether this pass has reduced the unit
    bool read_in_backward{};

    bool is_needed() const;  // whether a call has begun to come back and still needs the unit
    void forget_calls(bool graph_is_kept);
  };
  void begin_forward();
  bool is_recording() const;  // whether a call with gradients is under way
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
  std::shared_ptr<FlatParameter> reducing_;  // its reduce-scatter is under way
  std::weak_ptr<bool> pass_;                 // held by the engine while the outermost pass lasts
  int outermost_{};                          // the outermost pass's number
  bool ended_{true};                         // whether the latest pass has reached its end
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

  // The parameters keep these functions, and the unit keeps the parameters. So the functions hold
  // weak pointers to the unit and to this object; otherwise neither would be freed.
  for (size_t i = 0; i < unit->flat->parameters().size(); ++i) {
    const auto ready = [hooks = weak_from_this(), owner = std::weak_ptr(unit), i] {
      const auto alive = hooks.lock();
      const auto holder = owner.lock();
      if (alive && holder) alive->collect(*holder, i);
    };
    register_post_accumulate_grad_hook(unit->flat->parameters()[i].tensor, ready);
  }
}

// Forgets the calls of an evaluation before this forward: backward will not run them again.
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

// The module works on a view of its input. The gradient of that view is complete when all that was
// made inside has come back, whatever else uses the input.
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
  if (output.defined() && unit->is_needed()) unit->flat->unshard();  // the call has resharded it
  if (output.defined() && !at::GradMode::is_enabled() && !in_pass) {
    ++unit->to_record;
    if (is_recording()) ++unit->hidden;
  }
  if (!at::GradMode::is_enabled() || !output.defined() || !output.requires_grad()) return {};
  if (in_pass && unit->to_record > 0) {
    --unit->to_record;
    unit->hidden = std::min(unit->hidden, unit->to_record);
    begin_backward();  // this pass runs the call again, and then a pass inside it
  }
  unit->calls.push_back(call);
  const auto hook = [self = shared_from_this(), unit, call](const at::Tensor&) {
    self->enter_backward(*unit, *call);
  };
  // On a leaf, the hook would stay for ever. On a returned input, it would be called after the hook
  // that ends the call.
  if (output.is_leaf() || output.unsafeGetTensorImpl() == call->inside) {
    at::Tensor other = output.view_as(output);
    other.register_hook(hook);
    return other;
  }
  // A view that is changed in place loses its hooks. Its base keeps its own hooks, but may be older
  // than the call.
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

// Called when all of the call has come back. For a call whose input needs no gradient it is never
// called: then the end of the pass reduces the unit.
void BackwardHooksImpl::leave_backward(Unit& unit, Call& call) {
  begin_backward();
  const bool inner = torch::autograd::get_current_graph_task_id() != outermost_;
  if (inner && torch::autograd::get_current_graph_task_keep_graph()) return;  // comes back again
  call.back = true;
  if (inner || unit.hidden > 0) return;  // the outermost pass reduces the unit at its end
  const bool all = std::all_of(unit.calls.begin(), unit.calls.end(), [](const auto& other) {
    const auto alive = other.lock();
    return !alive || alive->back;
  });
  if (all && !unit.reduced) post_backward(unit);
}

// Called at every sign of a backward pass. The engine drops its callbacks with the pass, also when
// the pass ends by an exception.
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

// Calls that have come back cannot come back again, unless the graph is kept.
void BackwardHooksImpl::Unit::forget_calls(bool graph_is_kept) {
  std::erase_if(calls, [&](const auto& other) {
    const auto call = other.lock();
    if (!call || (call->begun && !graph_is_kept)) return true;
    call->begun = call->back = false;
    return false;
  });
}

// Frees the parameters first, before the gradient of the next unit needs memory.
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
