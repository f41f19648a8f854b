#include <checkpoint_activations.h>
#include <memory/storage_guard.h>
#include <nn/generator_states.h>
#include <optim/shard_layout.h>
#include <torch/csrc/autograd/custom_function.h>

#include <stdexcept>

namespace fsdp {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// While it lives, draws go on from these states. Then the generators are as they were before.
class Replay {
 public:
  Replay(const GeneratorStates& states, c10::Device device) : before_(device) { states.restore(); }
  Replay(const Replay&) = delete;
  ~Replay() { before_.restore(); }

 private:
  GeneratorStates before_;
};

// While it lives, this thread runs a forward() for the second time.
class SecondRun {
 public:
  SecondRun() { alive = true; }
  SecondRun(const SecondRun&) = delete;
  ~SecondRun() { alive = false; }
  static bool under_way() { return alive; }

 private:
  static thread_local bool alive;
};

thread_local bool SecondRun::alive = false;

// What it takes to run a call's forward() again. The graph owns it.
struct Call : torch::CustomClassHolder {
  Call(Module& called, c10::Device device)
      : owner(called.shared_from_this()), module(called), states(device) {}

  std::shared_ptr<torch::nn::Module> owner;  // of `module`
  Module& module;
  GeneratorStates states;  // when the call began
};

// The parameters are inputs too. So the engine takes their gradients on from here, like those of
// any node: in the pass that runs, and when all uses have been added up.
struct CheckpointedCall : torch::autograd::Function<CheckpointedCall> {
  static at::Tensor forward(AutogradContext* context, at::TensorList parameters,
                            const at::Tensor& input, Module& module) {
    context->saved_data["call"] =
        c10::IValue::make_capsule(c10::make_intrusive<Call>(module, input.device()));
    variable_list saved = parameters.vec();
    saved.push_back(input);
    context->save_for_backward(saved);
    return module.forward(input);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto held = context->saved_data["call"].toCapsule();
    auto& call = static_cast<Call&>(*held);
    variable_list saved = context->get_saved_variables();
    const size_t inputs = saved.size();
    at::Tensor& input = saved.back();
    const bool to_input = input.requires_grad();
    input = input.detach().set_requires_grad(to_input);
    at::Tensor output;
    {
      const SecondRun scope;
      const at::AutoGradMode with_gradients(/*enabled=*/true);
      const Replay replay(call.states, input.device());
      output = call.module.forward(input);
    }
    if (!to_input) saved.pop_back();
    variable_list found =
        torch::autograd::grad({output}, saved, gradients, /*retain_graph=*/std::nullopt,
                              /*create_graph=*/false, /*allow_unused=*/true);
    found.resize(inputs + 1);  // the module's is undefined
    return found;
  }
};

// The distinct ones. Throws if a unit inside the module holds one.
variable_list trainable_parameters(const Module& module) {
  variable_list trainable;
  for (const auto& [name, parameter] : distinct_parameters(module)) {
    if (is_freed(parameter))
      throw std::logic_error("checkpoint_activations: " + module.name() +
                             ": a unit inside it holds parameter " + name +
                             "; checkpoint modules that have no unit inside");
    if (parameter.requires_grad()) trainable.push_back(parameter);
  }
  return trainable;
}

}  // namespace

void checkpoint_activations(Module& module) {
  module.set_forward([](Module& called, const at::Tensor& input) {
    if (!at::GradMode::is_enabled() || SecondRun::under_way()) return called.forward(input);
    const variable_list parameters = trainable_parameters(called);
    return CheckpointedCall::apply(at::TensorList(parameters), input, called);
  });
}

}  // namespace fsdp
