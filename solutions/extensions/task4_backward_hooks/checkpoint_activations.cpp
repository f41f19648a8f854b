#include <ATen/autocast_mode.h>
#include <checkpoint_activations.h>
#include <memory/storage_guard.h>
#include <nn/generator_states.h>
#include <nn/thread_settings.h>
#include <optim/shard_layout.h>
#include <torch/csrc/autograd/custom_function.h>

#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The states of generators and the settings of this thread. A forward() depends on them besides its
// input and parameters. The constructor saves the current ones.
struct Surroundings {
  explicit Surroundings(c10::Device device) : generators(device) {}
  void restore() const {
    generators.restore();
    settings.restore();
  }
  GeneratorStates generators;
  ThreadSettings settings;
};

// While this object lives, this thread runs a forward() for the second time, in the surroundings of
// the first run. Its destructor restores the surroundings from before.
class SecondRun {
 public:
  SecondRun(const Surroundings& first, c10::Device device)
      : first_(first), before_(device), outer_(std::exchange(alive, true)) {
    first.restore();
  }
  SecondRun(const SecondRun&) = delete;
  ~SecondRun() {
    // Otherwise a later forward under autocast would use casts from before an optimizer's step.
    if (first_.settings.autocast()) at::autocast::clear_cache();
    before_.restore();
    alive = outer_;
  }
  static bool under_way() { return alive; }

 private:
  inline static thread_local bool alive = false;
  const Surroundings& first_;
  Surroundings before_;
  bool outer_;
};

// The data with which the forward() of a call runs again. The graph owns it.
struct Call : torch::CustomClassHolder {
  Call(Module& called, Surroundings first)
      : owner(called.shared_from_this()), module(called), first(std::move(first)) {}

  std::shared_ptr<torch::nn::Module> owner;  // of `module`
  Module& module;
  Surroundings first;  // when the call began
};

// Throws if a parameter is sharded in backward, which does not gather a unit if its module's
// reads_parameters_in_backward() is false.
void check_gathered(const Module& module) {
  for (const auto& [name, parameter] : distinct_parameters(module))
    if (is_freed(parameter))
      throw std::logic_error("checkpoint_activations: backward runs forward() of " + module.name() +
                             " again, but parameter " + name +
                             " is sharded there; let reads_parameters_in_backward() of its unit's "
                             "module return true");
}

// A call whose backward runs forward() again. The parameters are inputs too. So the engine handles
// the gradients that backward() returns for them as those of any node: in the pass that runs, and
// when all uses have been added up.
struct CheckpointedCall : torch::autograd::Function<CheckpointedCall> {
  static at::Tensor forward(AutogradContext* context, at::TensorList parameters,
                            const at::Tensor& input, Module& module, const Surroundings& now) {
    context->saved_data["call"] = c10::IValue::make_capsule(c10::make_intrusive<Call>(module, now));
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
    check_gathered(call.module);
    const bool to_input = input.requires_grad();
    input = input.detach().set_requires_grad(to_input);
    at::Tensor output;
    {
      const SecondRun scope(call.first, input.device());
      output = call.module.forward(input);
    }
    if (!to_input) saved.pop_back();
    variable_list found =
        torch::autograd::grad({output}, saved, gradients, /*retain_graph=*/std::nullopt,
                              /*create_graph=*/false, /*allow_unused=*/true);
    found.resize(inputs + 2);  // module and surroundings get undefined gradients
    return found;
  }
};

// Returns the distinct trainable parameters. Throws if a unit inside the module holds one.
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
    // A module whose backward reads no parameters, such as a row lookup, saves only its input for
    // backward anyway.
    const bool keeps_its_input_alone = !called.reads_parameters_in_backward();
    if (!at::GradMode::is_enabled() || SecondRun::under_way() || keeps_its_input_alone)
      return called.forward(input);
    const variable_list parameters = trainable_parameters(called);
    const Surroundings now(input.device());
    return CheckpointedCall::apply(at::TensorList(parameters), input, called, now);
  });
}

}  // namespace fsdp
