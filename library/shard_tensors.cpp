#include <backward_pass.h>
#include <memory/storage.h>
#include <memory/storage_guard.h>
#include <part_mark.h>
#include <shard_tensors.h>
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

// Storage for tensors on which all of the unit's parameters have room, and which nobody may read.
c10::Storage trap_storage(const FlatParameter& unit, const std::string& message) {
  const c10::Storage storage = storage_of_no_bytes(unit.shard().device().type());
  guard_storage(storage, "the gradients of unit " + unit.unit() + message,
                unit.layout().padded_numel * unit.shard().element_size());
  return storage;
}

// [1, ..., 1, n] of as many dimensions as the parameter: programs choose groups by dim().
std::vector<int64_t> sizes_of_part(const at::Tensor& whole, int64_t numel) {
  std::vector<int64_t> sizes(std::max<size_t>(whole.dim(), 1), 1);
  sizes.back() = numel;
  return sizes;
}

// Runs a function when the last tensor that has it is gone.
struct AtDrop : c10::BackendMeta {
  explicit AtDrop(std::function<void()> function) : run(std::move(function)) {}
  ~AtDrop() override { run(); }
  std::function<void()> run;
};

}  // namespace

ShardTensors::ShardTensors(const FullySharded& sharded, int world_size)
    : backward_hooks_(sharded.backward_hooks()), units_(sharded.units()) {
  const at::NoGradGuard no_grad;
  std::vector<c10::Storage> incomplete, misplaced;
  for (const auto& unit : units_) {
    traps_.push_back(trap_storage(*unit,
                                  " are sharded: give optimizers model.parameters(), not those of "
                                  "the module, and clip by model.clip_grad_norm_()"));
    incomplete.push_back(trap_storage(*unit, kNotReduced));
    misplaced.push_back(trap_storage(*unit,
                                     " were put into the module's parameters, where they are not "
                                     "reduced: put those of this rank's elements, of all ranks "
                                     "together, into model.parameters()"));
  }
  std::vector<size_t> next(units_.size());  // parameter of each unit
  for (const auto& parameter : sharded.layout().parameters) {
    const FlatParameter& unit = *units_[parameter.unit];
    const at::Tensor whole = unit.parameters()[next[parameter.unit]++].tensor;
    const int64_t shard_end = unit.shard_offset() + unit.shard_numel();
    // In the flat parameter; empty if the shard has no element of it.
    const int64_t begin =
        std::clamp(unit.shard_offset(), parameter.offset, parameter.offset + parameter.numel);
    const int64_t end = std::clamp(shard_end, begin, parameter.offset + parameter.numel);
    const int64_t offset = begin < end ? begin - unit.shard_offset() : 0;
    const auto sizes = sizes_of_part(whole, end - begin);
    at::Tensor own = unit.shard().narrow(0, offset, end - begin).view(sizes).detach();
    own.set_requires_grad(whole.requires_grad());
    entries_.push_back(
        {parameter.name, whole, parameter.unit, parameter.offset, begin - parameter.offset, offset,
         own, view_of_storage(incomplete[parameter.unit], 0, own.sizes()),
         view_of_storage(misplaced[parameter.unit], 0, own.sizes()), whole.requires_grad()});
    Entry& entry = entries_.back();
    entry.no_gradient_by_name = std::make_shared<NoGradientByName>(own, parameter.name);
    if (world_size == 1) continue;  // then the part is the whole
    entry.part = part_of(parameter.name, /*is_gradient=*/false);
    entry.part_of_gradient = part_of(parameter.name, /*is_gradient=*/true);
    mark_part(entry.own, entry.part);
  }
}

void ShardTensors::register_hooks() {
  const auto hook = [this](at::Tensor leaf, auto function) {
    const bool trainable = leaf.requires_grad();
    leaf.set_requires_grad(true);  // else no hook can be registered; it may be unfrozen later
    leaf.register_hook([weak = weak_from_this(), function](const at::Tensor& gradient) {
      const auto alive = weak.lock();
      return alive ? function(*alive, gradient) : gradient;
    });
    leaf.set_requires_grad(trainable);
  };
  for (size_t i = 0; i < entries_.size(); ++i) {
    hook(entries_[i].whole, [i](ShardTensors& self, const at::Tensor& gradient) {
      self.arrived(self.entries_[i], gradient);
      return gradient;
    });
    // A leaf may be part of the loss. What comes is added to .grad, so that has to be no trap.
    hook(entries_[i].own, [i](ShardTensors& self, const at::Tensor& gradient) {
      Entry& entry = self.entries_[i];
      if (entry.own.grad().is_same(entry.incomplete))
        entry.own.mutable_grad() = std::exchange(entry.reduced, {});
      return self.marked(entry, gradient);
    });
  }
}

// A copy: other leaves may get the same tensor.
at::Tensor ShardTensors::marked(const Entry& entry, const at::Tensor& gradient) const {
  if (!gradient.defined() || is_part(gradient) || !entry.part_of_gradient) return gradient;
  const at::Tensor copy = gradient.clone();
  mark_part(copy, entry.part_of_gradient);
  return copy;
}

void ShardTensors::set_sync(bool sync) {
  sync_ = sync;
  backward_hooks_->set_requires_gradient_sync(sync);
}

void ShardTensors::give_gradients() {
  if (!std::exchange(gives_gradients_, true) && !under_way_) end_pass();
}

bool ShardTensors::is_trap(const Entry& entry) const {
  const at::Tensor& gradient = entry.whole.grad();
  return gradient.defined() && gradient.has_storage() &&
         gradient.storage().unsafeGetStorageImpl() == traps_[entry.unit].unsafeGetStorageImpl();
}

void ShardTensors::arrived(Entry& entry, const at::Tensor& gradient) {
  if (at::GradMode::is_enabled()) {
    throw std::logic_error("backward: parameter " + entry.name +
                           " is sharded, so backward cannot be differentiated: create_graph has to "
                           "be off");
  }
  in_pass();
  if (idle_) check_not_added(entry);
  if (gradient.defined() && gradient.layout() != at::kStrided) {
    throw std::logic_error(
        "backward: the gradient of parameter " + entry.name +
        " is sparse, which can't be sharded; make its layer without .sparse(true)");
  }
  entry.trap = 0;
  if (is_trap(entry)) entry.whole.mutable_grad().reset();
}

// autograd::grad() reduces nothing, so what a backward() inside it adds to .grad would stay this
// rank's.
void ShardTensors::check_not_added(const Entry& entry) {
  const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(entry.whole);
  if (!destination_at(accumulator.get()).grad) return;
  throw std::logic_error(
      "autograd::grad(): a backward() inside it, as of a checkpoint, has a "
      "gradient for parameter " +
      entry.name +
      ", which is sharded, and nothing would reduce it; run backward() in place of "
      "grad(), or checkpoint the module by checkpoint_activations()");
}

// A pass inside a pass, as checkpointed modules run one, is a part of that one.
void ShardTensors::in_pass() {
  if (under_way_) return;
  const bool idle = !adds_up();
  for (Entry& entry : entries_)
    look_at(entry);
  expect_drop();
  std::vector<bool> waits(units_.size());
  for (const Entry& entry : entries_)
    if (entry.unreduced.defined()) waits[entry.unit] = true;
  for (size_t unit = 0; unit < units_.size(); ++unit)
    if (!waits[unit]) units_[unit]->abandon_gradient();
  for (Entry& entry : entries_)
    begin_pass(entry);
  when_pass_ends([] {},  // the units call end_pass()
                 [weak = weak_from_this()] {
                   const auto alive = weak.lock();
                   if (alive && alive->under_way_) alive->break_off();
                 });
  if (idle) backward_hooks_->set_requires_gradient_sync(false);
  under_way_ = true;
  idle_ = idle;
}

void ShardTensors::leave_pass() {
  under_way_ = false;
  if (std::exchange(idle_, false)) backward_hooks_->set_requires_gradient_sync(sync_);
}

// Not a pass of autograd::grad(), which gives gradients to its caller.
bool ShardTensors::adds_up() const {
  bool adds_up = destination_at(nullptr).grad;
  for (const Entry& entry : entries_) {
    const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(entry.whole);
    const Destination at = destination_at(accumulator.get());
    if (at.caller) refuse_gradient_by_name(entry.name);
    adds_up |= at.grad;
  }
  return adds_up;
}

// What the user has done since the last pass.
void ShardTensors::look_at(Entry& entry) {
  if (entry.trap != 0 && !is_trap(entry)) trap_is_gone(entry, entry.whole.grad().defined());
  if (entry.whole.grad().defined() && !is_trap(entry)) {
    throw std::logic_error("backward: a gradient was put into .grad of the module's parameter " +
                           entry.name +
                           ", where it is not reduced; drop it by model.zero_grad(), and put what "
                           "this rank owns of it into .grad of model.parameters()");
  }
  if (!is_in_place(entry)) {
    throw std::logic_error("backward: parameter " + entry.name +
                           " was changed since its forward, by set_data() of model.parameters(); "
                           "run backward before the change, or forward anew");
  }
  at::Tensor& own = entry.own.mutable_grad();
  if (own.is_same(entry.misplaced)) own.reset();  // what was put there is gone
  if (!gives_gradients_ || own.is_same(entry.incomplete)) return;
  entry.reduced.reset();
  entry.unreduced.reset();
  entry.broken = false;
}

void ShardTensors::begin_pass(Entry& entry) {
  if (std::exchange(entry.waits, false)) {
    // Of several that wait, one that was dropped counts as zero.
    const bool dropped = !entry.unreduced.defined() && units_[entry.unit]->has_gradient();
    at::Tensor& sum = entry.whole.mutable_grad();
    sum = std::exchange(entry.unreduced, {});
    if (dropped)
      sum = at::zeros(entry.whole.sizes(),
                      entry.own.detach().options().dtype(entry.whole.scalar_type()));
  }
  at::Tensor& gradient = entry.own.mutable_grad();
  if (!gives_gradients_ || gradient.is_same(entry.incomplete)) return;
  // Also of a frozen one that has one: a step over some of them would be half a step.
  if (entry.requires_grad || gradient.defined())
    entry.reduced = std::exchange(gradient, entry.incomplete);
}

// Other models of this communicator go on: what the pass has called is waited for.
void ShardTensors::break_off() {
  leave_pass();
  expect_drop();
  try {
    for (const auto& unit : units_) {
      unit->reshard();
      unit->abandon_gradient();
      if (gives_gradients_) unit->drop_gradient();
    }
  } catch (const std::exception&) {  // a collective has failed, and every later one will say so
  }
  for (Entry& entry : entries_) {
    entry.whole.mutable_grad().reset();
    entry.reduced.reset();
    entry.broken = entry.own.grad().is_same(entry.incomplete);  // else it has been dropped
  }
  set_traps();
}

void ShardTensors::end_pass() {
  const at::NoGradGuard no_grad;
  leave_pass();
  incomplete_ = std::ranges::any_of(units_, [](const auto& unit) { return unit->has_gradient(); });
  std::vector<at::Tensor> of_units(units_.size());
  for (size_t unit = 0; gives_gradients_ && unit < units_.size(); ++unit) {
    of_units[unit] = units_[unit]->sharded_gradient();
    units_[unit]->drop_gradient();
  }
  for (Entry& entry : entries_)
    end_pass(entry, of_units[entry.unit]);
  set_traps();
}

void ShardTensors::end_pass(Entry& entry, const at::Tensor& of_unit) {
  const bool waits = units_[entry.unit]->has_gradient();
  if (waits && entry.whole.grad().defined() && !is_trap(entry)) {
    entry.waits = true;
    entry.unreduced = std::exchange(entry.whole.mutable_grad(), {});
  }
  at::Tensor& gradient = entry.own.mutable_grad();
  const bool awaited = entry.requires_grad || gradient.is_same(entry.incomplete);
  if (!gives_gradients_ || !awaited || entry.broken) return;
  if (gradient.is_same(entry.incomplete)) gradient = std::exchange(entry.reduced, {});
  if (of_unit.defined()) give(entry, of_unit);
  if (waits || (incomplete_ && gradient.defined()))
    entry.reduced = std::exchange(gradient, entry.incomplete);
}

// Calls the hooks that the user has registered on the leaf, as the engine would.
void ShardTensors::give(Entry& entry, const at::Tensor& of_unit) {
  // No view to autograd: Optimizer::zero_grad() detaches gradients in place.
  at::Tensor part = view_of_storage(of_unit.storage(), of_unit.storage_offset() + entry.offset,
                                    entry.own.sizes(), of_unit.scalar_type());
  mark_part(part, entry.part_of_gradient);
  for (const auto& hook : torch::autograd::impl::hooks(entry.own))
    part = (*hook)({part}).at(0);
  at::Tensor& gradient = entry.own.mutable_grad();
  if (gradient.defined()) {
    gradient.add_(part);
  } else {
    gradient = std::move(part);
  }
  mark_part(gradient, entry.part_of_gradient);
  if (const auto& hook = torch::autograd::impl::post_acc_grad_hooks(entry.own)) (*hook)(entry.own);
}

void ShardTensors::expect_drop() {
  for (Entry& entry : entries_)
    entry.trap = 0;
}

void ShardTensors::set_traps() {
  for (size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    if (entry.trap != 0) continue;
    if (entry.whole.grad().defined() && !is_trap(entry)) continue;
    const int64_t number = ++last_trap_;
    const at::Tensor trap = view_of_storage(traps_[entry.unit], 0, entry.whole.sizes());
    const auto gone = [weak = weak_from_this(), i, number] {
      const auto alive = weak.lock();
      if (!alive || alive->entries_[i].trap != number) return;
      // While reset() destroys the trap, it still stands in its place, held by nobody.
      const at::Tensor& now = alive->entries_[i].whole.grad();
      alive->trap_is_gone(alive->entries_[i], now.defined() && now.use_count() > 0);
    };
    trap.unsafeGetTensorImpl()->set_backend_meta(c10::make_intrusive<AtDrop>(gone));
    entry.whole.mutable_grad() = trap;
    entry.trap = number;
  }
}

// The user has dropped it, or put another gradient in its place.
void ShardTensors::trap_is_gone(Entry& entry, bool replaced) {
  entry.trap = 0;
  forget(entry);
  if (replaced && gives_gradients_) entry.own.mutable_grad() = entry.misplaced;
}

void ShardTensors::forget(Entry& entry) {
  const at::NoGradGuard no_grad;
  entry.own.mutable_grad().reset();
  entry.unreduced.reset();
  const at::Tensor& of_unit = units_[entry.unit]->sharded_gradient();
  if (of_unit.defined()) of_unit.narrow(0, entry.offset, entry.own.numel()).zero_();
}

void ShardTensors::zero_grad() {
  settle_broken_passes();
  expect_drop();
  for (const auto& unit : units_) {
    unit->abandon_gradient();
    unit->drop_gradient();
  }
  for (Entry& entry : entries_) {
    forget(entry);
    entry.waits = false;
  }
  set_traps();
}

void ShardTensors::check_complete() const {
  for (const Entry& entry : entries_)
    if (entry.own.grad().is_same(entry.incomplete))
      throw std::logic_error("the gradients of unit " + units_[entry.unit]->unit() + kNotReduced);
}

bool ShardTensors::is_in_place(const Entry& entry) const {
  const at::Tensor& shard = units_[entry.unit]->shard();
  const at::Tensor& own = entry.own;
  return own.has_storage() && own.is_alias_of(shard) && own.is_contiguous() &&
         own.storage_offset() == shard.storage_offset() + entry.offset &&
         own.sizes() == entry.incomplete.sizes();
}

bool ShardTensors::data_was_given() const {
  return std::ranges::any_of(entries_, [&](const Entry& entry) { return !is_in_place(entry); });
}

// In one process the parameter would be what was given. Here the shard takes its values.
void ShardTensors::take_data() {
  const at::NoGradGuard no_grad;
  const PartsAsTensors inside;
  for (const Entry& entry : entries_) {
    if (is_in_place(entry)) continue;
    const at::Tensor& shard = units_[entry.unit]->shard();
    at::Tensor own = entry.own;
    if (own.sizes() != entry.incomplete.sizes() || own.scalar_type() != shard.scalar_type() ||
        own.device() != shard.device()) {
      throw std::logic_error("model.parameters(): set_data() gave parameter " + entry.name +
                             " a tensor of another shape, dtype or device; write to it in place");
    }
    const at::Tensor place =
        at::Tensor(shard).narrow(0, entry.offset, own.numel()).view(own.sizes());
    place.copy_(own);
    own.set_data(place.detach());
    mark_part(own, entry.part);
  }
}

void ShardTensors::compare_requires_grad() {
  for (Entry& entry : entries_) {
    const bool changed = entry.whole.requires_grad() != entry.requires_grad ||
                         entry.own.requires_grad() != entry.requires_grad;
    if (!changed) continue;
    entry.requires_grad = !entry.requires_grad;
    entry.whole.set_requires_grad(entry.requires_grad);
    entry.own.set_requires_grad(entry.requires_grad);
  }
}

std::vector<bool> ShardTensors::requires_grad() const {
  std::vector<bool> of_entries;
  for (const Entry& entry : entries_)
    of_entries.push_back(entry.requires_grad);
  return of_entries;
}

}  // namespace fsdp
