#include <backward_pass.h>
#include <memory/live_bytes.h>
#include <memory/memory_class.h>
#include <memory/storage.h>
#include <memory/storage_guard.h>
#include <model_checks.h>
#include <nn/gradient_hook.h>
#include <reducer.h>
#include <replicated_model.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <stdexcept>

namespace fsdp {
namespace {

// In a backward pass, ranks compare at least this many values of each parameter; all values of a
// parameter that has fewer.
constexpr int64_t kCompared = 256;

// `all` is the set of the parameters of all Reducers of this process. Every thread that uses it
// holds `mutex`.
struct ReplicatedParameters {
  std::mutex mutex;
  std::set<const at::TensorImpl*> all;
};
ReplicatedParameters& replicated_parameters() {
  // `parameters` (the set of replicated parameters) is never destroyed, because a static object may
  // hold a replicated model until the process ends.
  static auto& parameters = *new ReplicatedParameters;
  return parameters;
}

}  // namespace

bool is_replicated(const at::Tensor& parameter) {
  auto& replicated = replicated_parameters();
  const std::scoped_lock lock(replicated.mutex);
  return replicated.all.contains(parameter.unsafeGetTensorImpl());
}

Reducer::Reducer(Module& net, std::shared_ptr<Communicator> comm, double bucket_cap_mb)
    : net_(net),
      comm_(std::move(comm)),
      replicas_(comm_->replicas()),
      cap_(static_cast<int64_t>(std::min(bucket_cap_mb, 1e6) * (1 << 20))) {
  const c10::Storage nothing = storage_of_no_bytes(comm_->device());
  int64_t largest = 0;
  auto& replicated = replicated_parameters();
  const std::scoped_lock lock(replicated.mutex);
  for (const auto& parameter : distinct_parameters(net)) {
    largest = std::max(largest, static_cast<int64_t>(parameter.tensor.nbytes()));
    entries_.push_back({parameter, view_of_storage(nothing, 0, parameter.tensor.sizes(),
                                                   parameter.tensor.scalar_type())});
    replicated.all.insert(parameter.tensor.unsafeGetTensorImpl());
  }
  guard_storage(nothing,
                "the gradients of " + net.name() +
                    " have not been reduced: run the last backward before a step outside of "
                    "no_sync(); after a backward that threw, call zero_grad()",
                largest);
}

Reducer::~Reducer() {
  auto& replicated = replicated_parameters();
  const std::scoped_lock lock(replicated.mutex);
  for (const Entry& entry : entries_)
    replicated.all.erase(entry.tensor.unsafeGetTensorImpl());
}

void Reducer::register_hooks() {
  for (Entry& entry : entries_) {
    const bool trainable = entry.tensor.requires_grad();
    // register_hook() refuses a tensor that requires no gradient, but a frozen parameter may be
    // unfrozen later.
    entry.tensor.set_requires_grad(true);
    entry.tensor.register_hook([weak = weak_from_this(), &entry](const at::Tensor& gradient) {
      if (const auto alive = weak.lock()) alive->autograd_hook(entry, gradient);
    });
    entry.tensor.set_requires_grad(trainable);
  }
  // Because of this hook, a rank takes part in the reductions even if the pass reaches no parameter
  // on it.
  net_.register_full_backward_pre_hook([self = shared_from_this()](Module&) {
    if (gradient_target(nullptr).grad) self->begin_pass();
  });
  net_.register_forward_hook([self = shared_from_this()](Module&, const at::Tensor&) {
    if (self->unrecorded_.run_again()) self->begin_pass();
    return at::Tensor();
  });
}

void Reducer::begin_forward() {
  run_deferred_failures();
  if (at::GradMode::is_enabled()) unrecorded_.forget();
}

void Reducer::check_parameters() const {
  for (const auto& parameter : net_.named_parameters())
    if (!is_replicated(parameter.value()))
      throw std::logic_error("parameter " + parameter.key() +
                             " was registered after the model was replicated, so its gradient "
                             "would not be reduced; build the whole model before");
}

void Reducer::zero_grad() {
  run_deferred_failures();
  for (Entry& entry : entries_)
    entry.tensor.mutable_grad().reset();
}

void Reducer::begin_pass() {
  // If pass_ is not -1, an earlier call of begin_pass() has begun the current backward pass, or the
  // outer backward pass in which the current one runs.
  if (pass_ >= 0) return;
  check_parameters();
  reduces_ = sync_;
  prepare_for_backward();
  pass_ = torch::autograd::get_current_graph_task_id();
  on_backward_end([self = shared_from_this()] { self->finalize_backward(); },
                  [weak = weak_from_this()] {
                    if (const auto alive = weak.lock()) alive->break_off();
                  });
  if (reduces_ && trains_ && comm_->data_parallel_size() > 1) compare_ranks();
}

// Lays out the buckets for each pass, because parameters may have been frozen, unfrozen or replaced
// by set_data().
void Reducer::prepare_for_backward() {
  std::vector<std::vector<int64_t>> shapes;
  for (Entry& entry : entries_) {
    check_dtype("root", {entry}, entry.placeholder.scalar_type());
    at::Tensor& gradient = entry.tensor.mutable_grad();
    const bool waits = gradient.is_same(entry.placeholder);
    entry.arrived = false;
    entry.trains = entry.tensor.requires_grad() || waits;
    // If .grad is not entry.placeholder, no gradient of an earlier pass waits to be reduced, or the
    // user has dropped or replaced that gradient.
    if (!waits) {
      entry.local.reset();
      entry.reduced.reset();
      entry.broken = false;
      if (entry.trains || gradient.defined())
        entry.reduced = std::exchange(gradient, entry.placeholder);
    }
    if (!entry.trains) continue;
    entry.gradient = shapes.size();
    // As in FSDP's flat parameter, every gradient begins at a multiple of 64 bytes, like a tensor
    // of its own: the last bits of a result of at::dot() depend on where its operands lie.
    shapes.push_back({round_up(entry.tensor.numel(), kAlignment)});
  }
  trains_ = !shapes.empty();
  buckets_ = make_bucket_reducer(shapes, {cap_, cap_}, comm_);
  buckets_->begin();
}

void Reducer::autograd_hook(Entry& entry, const at::Tensor& gradient) {
  if (!gradient_target(torch::autograd::get_current_node().get()).grad) return;
  const std::string where = "backward: the gradient of parameter " + entry.name;
  if (at::GradMode::is_enabled())
    throw std::logic_error(where +
                           " is reduced, which cannot be differentiated: create_graph has to be "
                           "off; torch::autograd::grad() reduces nothing, and may have it on");
  if (gradient.defined() && gradient.layout() != at::kStrided)
    throw std::logic_error(where +
                           " is sparse, which can't be reduced; make its layer without "
                           ".sparse(true)");
  begin_pass();
  if (!entry.trains) return;
  entry.tensor.mutable_grad().reset();
  entry.arriving = true;
  // Registers mark_ready() as a hook anew in each pass, so that it is the last hook of the
  // parameter, and all other hooks find the gradient of this pass in .grad.
  entry.remove_hook();
  entry.remove_hook =
      register_post_accumulate_grad_hook(entry.tensor, [weak = weak_from_this(), &entry] {
        if (const auto alive = weak.lock()) alive->mark_ready(entry);
      });
}

void Reducer::mark_ready(Entry& entry) {
  const at::NoGradGuard no_grad;
  if (!std::exchange(entry.arriving, false)) return;
  const at::Tensor gradient = std::exchange(entry.tensor.mutable_grad(), entry.placeholder);
  if (torch::autograd::get_current_graph_task_id() != pass_)
    return collect_of_inner_pass(entry, gradient);
  entry.arrived = true;
  if (!reduces_) {
    entry.unsynced = gradient;
    return;
  }
  // Adds in the parameter's dtype, as autograd does in one process; the bucket is fp32.
  write_to_place(entry, entry.local.defined() ? entry.local.add_(gradient) : gradient);
  buckets_->ready(entry.gradient);
}

// Returns the place of the parameter's gradient in its bucket, as a view with the parameter's
// sizes.
at::Tensor Reducer::place_of(const Entry& entry) {
  const at::Tensor padded = buckets_->place(entry.gradient);
  return view_of_storage(padded.storage(), padded.storage_offset(), entry.tensor.sizes());
}

// Writes the gradient of a parameter to its place in its bucket, and zeros to the padding after the
// gradient.
void Reducer::write_to_place(const Entry& entry, const at::Tensor& gradient) {
  const at::Tensor padded = buckets_->place(entry.gradient);
  padded.slice(0, gradient.numel()).zero_();
  place_of(entry).copy_(gradient);
}

// Keeps a gradient from a backward pass inside the outer pass. The outer pass adds it to the
// gradient that it computes itself, or reduces it at its end if it computes none.
void Reducer::collect_of_inner_pass(Entry& entry, const at::Tensor& gradient) {
  if (entry.arrived && reduces_)
    throw std::logic_error(
        "backward: a backward pass inside this one has a gradient for parameter " + entry.name +
        ", whose gradient of the outer pass is reduced already; to checkpoint a module, call "
        "checkpoint_activations()");
  at::Tensor& sum = entry.arrived ? entry.unsynced : entry.local;
  sum = sum.defined() ? sum.add_(gradient) : gradient;
}

void Reducer::finalize_backward() {
  pass_ = -1;
  const at::NoGradGuard no_grad;
  for (Entry& entry : entries_) {
    // If `arriving` is still true at the end of the backward pass, the gradient of the parameter
    // was undefined, so mark_ready() was not called for the parameter. Then entry.placeholder, a
    // tensor whose values cannot be read, goes back into .grad.
    if (std::exchange(entry.arriving, false)) entry.tensor.mutable_grad() = entry.placeholder;
    if (entry.unsynced.defined() && entry.local.defined()) entry.local.add_(entry.unsynced);
    if (entry.unsynced.defined() && !entry.local.defined()) entry.local = entry.unsynced;
    entry.unsynced.reset();
  }
  if (reduces_) move_gradients_to_leaves();
  buckets_.reset();
}

void Reducer::move_gradients_to_leaves() {
  std::vector<at::Tensor> places;
  for (const Entry& entry : entries_) {
    if (!entry.trains) continue;
    places.push_back(place_of(entry));
    if (entry.arrived || !entry.local.defined()) continue;
    write_to_place(entry, entry.local);
    buckets_->ready(entry.gradient);
  }
  for (const at::Tensor& sum : buckets_->finish()) {
    if (replicas_) replicas_->all_reduce(sum, "bucket").wait();
    // Divides the sum once by the number of ranks, because 1/W is not exact for every W.
    sum.div_(comm_->data_parallel_size());
  }
  for (Entry& entry : entries_) {
    at::Tensor& gradient = entry.tensor.mutable_grad();
    if (entry.broken || !gradient.is_same(entry.placeholder)) continue;
    gradient = std::exchange(entry.reduced, {});
    entry.local.reset();
    if (!entry.trains) continue;
    // Only now the mean is rounded, if the parameter is in 16 bits. An fp32 mean stays a view.
    const MemoryScope scope(MemoryClass::gradients);
    const at::Tensor mean = places[entry.gradient].to(entry.tensor.scalar_type());
    gradient = gradient.defined() ? gradient.add_(mean) : mean;
  }
}

// Ends a pass that has thrown. Waits for its collectives, because other models may share the
// communicator, and drops the gradients.
void Reducer::break_off() {
  pass_ = -1;
  try {
    // begin() of the BucketReducer waits for the all-reduces that the failed pass has issued.
    buckets_->begin();
  } catch (const std::exception&) {
    // A collective has failed. The error is not thrown here, because every later collective throws
    // it again.
  }
  buckets_.reset();
  for (Entry& entry : entries_) {
    if (std::exchange(entry.arriving, false)) entry.tensor.mutable_grad() = entry.placeholder;
    for (at::Tensor* part : {&entry.unsynced, &entry.local, &entry.reduced})
      part->reset();
    // If the user has dropped or replaced .grad during the pass, the gradient does not count as
    // broken.
    entry.broken = entry.tensor.grad().is_same(entry.placeholder);
  }
}

void Reducer::compare_ranks() {
  std::vector<RankInvariant> invariants;
  for (const Entry& entry : entries_) {
    const int64_t stride = std::max<int64_t>(1, entry.tensor.numel() / kCompared);
    const at::Tensor some =
        entry.tensor.detach().flatten().slice(0, passes_ % stride, std::nullopt, stride);
    invariants.push_back({"parameter " + entry.name,
                          entry.tensor.requires_grad() ? "trainable" : "frozen", kFreezeTheSame});
    RankInvariant of_values = invariant_of_values("parameter " + entry.name, some, kReplicasDiffer);
    // Because of this assignment, the message about values that differ between ranks names an
    // element of the whole parameter, not of the sample `some`.
    of_values.values = entry.tensor;
    invariants.push_back(of_values);
  }
  ++passes_;
  check_same_on_all_ranks(*comm_, invariants, "backward");
}

}  // namespace fsdp
