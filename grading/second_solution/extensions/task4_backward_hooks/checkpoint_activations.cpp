#include <checkpoint_activations.h>
#include <nn/generator_states.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <optional>
#include <stdexcept>
#include <vector>

// Autograd keeps a placeholder for each tensor that it would save in a call, as with PyTorch's
// checkpoint(use_reentrant=False), and the graph is that without checkpointing. The first
// placeholder that is read lets forward() run again, which fills them all.
namespace fsdp {
namespace {

using torch::autograd::SavedVariableHooks;

std::logic_error misuse(const Module& module, const std::string& what) {
  return std::logic_error("checkpoint_activations: " + module.name() + ": " + what);
}

// While it lives, draws go on from these states. Then the generators are as they were before.
class Replay {
 public:
  Replay(const GeneratorStates& states, c10::Device device) : before_(device) { states.restore(); }
  Replay(const Replay&) = delete;
  ~Replay() { before_.restore(); }

 private:
  GeneratorStates before_;
};

// Leaves a forward() that runs again when it has saved all that backward needs. It is no
// std::exception, which forward() might catch.
struct AllIsSaved {};

// One call of a checkpointed module. The nodes of its graph own it.
class CheckpointedCall : public std::enable_shared_from_this<CheckpointedCall> {
 public:
  static at::Tensor run(Module& module, at::Tensor input);

  // What autograd keeps in place of a tensor that it saves in this thread now. Null: the tensor.
  static std::unique_ptr<SavedVariableHooks> hooks();

 private:
  struct Saved {
    std::vector<int64_t> sizes;
    int64_t version;      // how often it had been changed in place when it was saved
    bool needed{true};    // a node still holds its placeholder
    at::Tensor tensor{};  // undefined before it is recomputed, and when it is not needed any more
  };
  class Placeholder;
  class SavedAgain;
  class Running;

  CheckpointedCall(Module& module, const at::Tensor& input)
      : module_(module.shared_from_this()),
        called_(module),
        input_(input),
        input_version_(input._version()),
        states_(input.device()) {}

  size_t save(const at::Tensor& tensor);
  void save_again(const at::Tensor& tensor);
  const at::Tensor& saved(size_t index);
  void drop(size_t index);
  void recompute();

  static thread_local CheckpointedCall* running;  // its forward() runs in this thread; or null

  std::shared_ptr<torch::nn::Module> module_;
  Module& called_;  // the same
  at::Tensor input_;
  int64_t input_version_;
  GeneratorStates states_;
  std::vector<Saved> saved_;  // in the order of the call
  size_t saved_again_{};      // how many of them, since forward() runs again
  enum class State { called, recomputing, recomputed } state_{};
};

thread_local CheckpointedCall* CheckpointedCall::running = nullptr;

// What a node holds in place of a saved tensor.
class CheckpointedCall::Placeholder : public SavedVariableHooks {
 public:
  explicit Placeholder(std::shared_ptr<CheckpointedCall> call) : call_(std::move(call)) {}
  Placeholder(const Placeholder&) = delete;
  ~Placeholder() override {
    if (index_) call_->drop(*index_);
  }
  void call_pack_hook(const at::Tensor& tensor) override { index_ = call_->save(tensor); }
  at::Tensor call_unpack_hook() override { return call_->saved(*index_); }

 private:
  std::shared_ptr<CheckpointedCall> call_;
  std::optional<size_t> index_;
};

// The same for the nodes of the forward() that runs again, which nobody goes back over.
class CheckpointedCall::SavedAgain : public SavedVariableHooks {
 public:
  explicit SavedAgain(CheckpointedCall& call) : call_(call) {}
  void call_pack_hook(const at::Tensor& tensor) override { call_.save_again(tensor); }
  at::Tensor call_unpack_hook() override {
    throw misuse(call_.called_, "forward() runs a backward of its own");
  }

 private:
  CheckpointedCall& call_;
};

class CheckpointedCall::Running {
 public:
  explicit Running(CheckpointedCall& call) : outer_(running) { running = &call; }
  Running(const Running&) = delete;
  ~Running() { running = outer_; }

 private:
  CheckpointedCall* outer_;
};

std::unique_ptr<SavedVariableHooks> CheckpointedCall::hooks() {
  if (running == nullptr) return nullptr;
  if (running->state_ == State::recomputing) return std::make_unique<SavedAgain>(*running);
  return std::make_unique<Placeholder>(running->shared_from_this());
}

at::Tensor CheckpointedCall::run(Module& module, at::Tensor input) {
  if (!at::GradMode::is_enabled() || running != nullptr) return module.forward(std::move(input));
  for (const auto& parameter : module.named_parameters()) {
    if (parameter->numel() > 0 && parameter->storage().nbytes() == 0)
      throw misuse(module, "a unit inside it holds parameter " + parameter.key() +
                               "; checkpoint modules that have no unit inside");
  }
  const std::shared_ptr<CheckpointedCall> call(new CheckpointedCall(module, input));
  const Running scope(*call);
  return module.forward(std::move(input));
}

size_t CheckpointedCall::save(const at::Tensor& tensor) {
  saved_.push_back({tensor.sizes().vec(), tensor._version()});
  return saved_.size() - 1;
}

void CheckpointedCall::save_again(const at::Tensor& tensor) {
  Saved& saved = saved_[saved_again_++];
  if (tensor.sizes() != at::IntArrayRef(saved.sizes))
    throw misuse(called_, "forward() saves other tensors in backward than in the call");
  if (tensor._version() != saved.version)
    throw misuse(called_, "a tensor that backward needs was changed in place after the call");
  if (saved.needed) saved.tensor = tensor.detach();  // not with the graph that nobody goes over
  if (saved_again_ == saved_.size()) throw AllIsSaved();  // NOLINT: no std::exception on purpose
}

const at::Tensor& CheckpointedCall::saved(size_t index) {
  if (state_ != State::recomputed) recompute();
  const Saved& saved = saved_[index];
  if (saved.tensor._version() != saved.version)
    throw misuse(called_, "a tensor that backward needs was changed in place by forward()");
  return saved.tensor;
}

void CheckpointedCall::drop(size_t index) {
  saved_[index].needed = false;
  saved_[index].tensor.reset();
}

void CheckpointedCall::recompute() {
  if (input_._version() != input_version_)
    throw misuse(called_, "its input was changed in place after the call");
  const at::AutoGradMode with_gradients(/*enabled=*/true);
  const Replay replay(states_, input_.device());
  const Running scope(*this);
  at::Tensor input = input_.detach();
  if (input_.requires_grad()) input.set_requires_grad(true);
  saved_again_ = 0;
  state_ = State::recomputing;
  try {
    called_.forward(input);
  } catch (const AllIsSaved&) {
    state_ = State::recomputed;
    return;
  } catch (...) {
    state_ = State::called;
    throw;
  }
  state_ = State::called;
  throw misuse(called_, "forward() saves fewer tensors in backward than in the call");
}

// LibTorch asks the default engine how to save tensors: Python's answers for its
// saved_tensors_hooks. All else is left to LibTorch's own engine.
class EngineThatSaves : public torch::autograd::Engine {
 public:
  static Engine& instance() {
    static auto* engine = new EngineThatSaves();  // as long as any thread
    return *engine;
  }

  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    return CheckpointedCall::hooks();
  }
  torch::autograd::variable_list execute(const torch::autograd::edge_list& roots,
                                         const torch::autograd::variable_list& inputs,
                                         bool keep_graph, bool create_graph, bool accumulate_grad,
                                         const torch::autograd::edge_list& outputs) override {
    return get_base_engine().execute(roots, inputs, keep_graph, create_graph, accumulate_grad,
                                     outputs);
  }
};

}  // namespace

void checkpoint_activations(Module& module) {
  torch::autograd::set_default_engine_stub(EngineThatSaves::instance);
  module.set_forward([](Module& called, at::Tensor input) {
    return CheckpointedCall::run(called, std::move(input));
  });
}

}  // namespace fsdp
