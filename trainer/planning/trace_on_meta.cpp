#include <memory/live_bytes.h>
#include <memory/meta_blocks.h>
#include <memory/reclassify.h>
#include <nn/generator_states.h>
#include <nn/gradient_hook.h>
#include <planning/flop_counter.h>
#include <planning/meta_kernels.h>
#include <planning/trace_on_meta.h>
#include <strategies/root_readers.h>
#include <strategies/scaled_backward.h>
#include <strategies/unit_modules.h>
#include <strategies/workload.h>
#include <torch/csrc/autograd/engine.h>

#include <utility>

namespace fsdp {
namespace {

using Kind = ModelTrace::Kind;

int64_t activations_now() {
  return live_bytes::now()[MemoryClass::other];
}
int64_t take_rest_peak() {
  const int64_t peak = live_bytes::peak()[MemoryClass::other];
  live_bytes::enter(Phase::init);
  return peak;
}

// A model on the meta device whose hooks record the events of a ModelTrace.
class MetaTrace {
 public:
  MetaTrace(const TrainConfig& config, const Workload& workload, const ShardLayout& layout,
            ConstructOnMeta construct_on_meta)
      : config_(config), workload_(workload), layout_(layout), calls_(layout.units.size()) {
    {
      // A constructor can make tensors besides parameters and buffers. If the ranks construct the
      // model on meta, these tensors take no memory in a run. So they are counted in
      // MemoryClass::gathered, which a trace does not read.
      const bool on_meta = config.ranks.mode == Mode::fsdp && config.sharding.meta_init;
      const MemoryScope scope(on_meta ? MemoryClass::gathered : MemoryClass::other);
      construct_on_meta([&] { model_ = workload_.build(); });
    }
    for (const at::Tensor& buffer : model_->buffers())
      live_bytes::reclassify(buffer.storage().data_ptr(), MemoryClass::other);
    parameters_ = distinct_parameters(*model_);
    for (size_t i = 0; i < parameters_.size(); ++i)
      place(i);
    if (config.ranks.mode == Mode::fsdp) watch_units();
  }

  ModelTraces traces() {
    ModelTraces traces;
    traces.has_activations = true;
    traces.begins = trace();
    const BatchPartition partition = config_.batch_partition();
    adds_ = config_.ranks.mode == Mode::fsdp
                ? partition.reduce_last && partition.accumulation_steps > 1
                : config_.precision.policy.reduce_dtype != at::kFloat;
    if (adds_) traces.adds = trace();
    return traces;
  }

 private:
  // Gives the parameter number `index` its param_dtype, as the ranks do. Registers a hook that runs
  // when the gradient of the parameter is complete: it does with the memory of the gradient what
  // the ranks do, and records the event.
  void place(size_t index) {
    auto& [name, tensor] = parameters_[index];
    const MixedPrecisionPolicy precision = config_.precision.policy_of(name);
    const MemoryScope scope(MemoryClass::gathered);
    tensor.set_data(at::empty(tensor.sizes(), tensor.options().dtype(precision.param_dtype)));
    if (!tensor.requires_grad()) return;
    register_post_accumulate_grad_hook(tensor, [this, index, precision] {
      at::Tensor& gradient = parameters_[index].tensor.mutable_grad();
      if (config_.ranks.mode == Mode::fsdp) {
        const int64_t before = live_bytes::now()[MemoryClass::gradients];
        live_bytes::reclassify(gradient.storage().data_ptr(), MemoryClass::gradients);
        note(Kind::gradient, index);
        trace_->backward.back().gradient_bytes = live_bytes::now()[MemoryClass::gradients] - before;
      } else {
        // In single and ddp, a rank rounds each gradient to reduce_dtype. In the first microbatch
        // of a sum, the rank copies the rounded gradient into a bucket of fp32; in a later
        // microbatch, it adds the rounded gradient to the bucket. Then the rank frees the gradient.
        {
          const at::Tensor sent = gradient.to(precision.reduce_dtype);
          if (adds_) sent.to(at::kFloat);
        }
        gradient.reset();
        note(Kind::gradient, index);
      }
    });
  }

  // Registers hooks that record the events at which the hooks of tasks 3, 4 and 6 act.
  void watch_units() {
    auto modules = modules_of_units(*model_, layout_);
    for (size_t unit = 0; unit < modules.size(); ++unit) {
      Module& module = modules[unit] != nullptr ? *modules[unit] : *model_;
      module.register_forward_pre_hook([this, unit](Module&, const at::Tensor&) {
        note(Kind::pre_forward, unit);
        return at::Tensor();
      });
      module.register_forward_hook([this, unit](Module& called, const at::Tensor& output) {
        note(Kind::post_forward, unit,
             output.requires_grad() && called.reads_parameters_in_backward());
        if (at::GradMode::is_enabled()) ++calls_[unit];
        return at::Tensor();
      });
      module.register_full_backward_pre_hook(
          [this, unit](Module&) { note(Kind::pre_backward, unit); });
      module.register_full_backward_hook(
          [this, unit](Module&) { note(Kind::post_backward, unit, --calls_[unit] == 0); });
    }
    when_root_is_unread(*model_, layout_, [this] { note(Kind::root_unread, 0); });
  }

  // Appends an event to the trace that is being recorded, if there is one. In --mode fsdp, the
  // first event of a backward pass also asks the autograd engine for a callback at the end of the
  // pass, as BackwardHooks does.
  void note(Kind kind, size_t index, bool last = true) {
    if (trace_ == nullptr) return;
    const bool in_pass = torch::autograd::get_current_graph_task_id() >= 0;
    if (config_.ranks.mode == Mode::fsdp && in_pass && !std::exchange(pass_began_, true))
      torch::autograd::Engine::get_default_engine().queue_callback([this] { note(Kind::end, 0); });
    auto& events = in_backward_ ? trace_->backward : trace_->forward;
    events.push_back({.kind = kind,
                      .index = index,
                      .last = last,
                      .peak = take_rest_peak(),
                      .activations = activations_now(),
                      .flops = flops_.take()});
  }

  at::Tensor loss() {
    return workload_.loss(*model_, /*microbatch=*/0, config_.batch_partition().microbatches(),
                          /*step=*/0);
  }

  // Returns the trace of one microbatch. Computes the loss twice and records the second time. The
  // first time makes the batch of the step, which the workload may keep, so the second one does not
  // make it again.
  ModelTrace trace() {
    const bool training = config_.training.steps > 0;
    const at::AutoGradMode gradients(training);
    ModelTrace trace;
    in_backward_ = false;
    take_rest_peak();
    {
      const at::NoGradGuard no_grad;
      trace_ = &trace;
      loss();
      trace_ = nullptr;
    }
    trace.begin_peak = trace.forward.empty() ? take_rest_peak() : trace.forward.front().peak;
    trace.forward.clear();
    trace.begin = activations_now();
    take_rest_peak();
    flops_.take();
    trace_ = &trace;
    at::Tensor loss = this->loss();
    note(Kind::none, 0);
    in_backward_ = true;
    if (training) {
      pass_began_ = false;
      scaled_backward(loss, /*scale=*/1);
      if (!pass_began_) note(Kind::end, 0);
    }
    loss = loss.detach();
    note(Kind::none, 0);
    trace.left = activations_now() - trace.begin;
    trace_ = nullptr;
    calls_.assign(calls_.size(), 0);
    return trace;
  }

  const TrainConfig& config_;
  const Workload& workload_;
  const ShardLayout& layout_;
  const meta_blocks::Counting counting_;
  const MetaKernels kernels_;
  FlopCounter flops_;
  std::shared_ptr<Module> model_;
  std::vector<NamedParameter> parameters_;  // the distinct parameters of the model on meta
  // For each unit: the number of calls of its module in this forward whose backward has not run
  // yet.
  std::vector<int64_t> calls_;
  ModelTrace* trace_{};  // the trace that is being recorded; null: no trace is being recorded
  // Says whether the trace that is being recorded becomes ModelTraces::adds: the trace of a
  // microbatch whose gradients are added to a sum that exists.
  bool adds_{};
  bool in_backward_{}, pass_began_{};
};

}  // namespace

ModelTraces trace_on_meta(const TrainConfig& config, const Workload& workload,
                          const ShardLayout& layout, ConstructOnMeta construct_on_meta) {
  const live_bytes::ScopedPeaks peaks;
  const auto states = [] {
    // A run does not copy the states of the generators, so this copy is counted in a memory class
    // that a trace does not read.
    const MemoryScope scope(MemoryClass::gathered);
    return GeneratorStates(c10::kCPU);
  }();
  auto traces = MetaTrace(config, workload, layout, construct_on_meta).traces();
  states.restore();
  return traces;
}

}  // namespace fsdp
