#include <checkpoint_activations.h>
#include <nn/generator_states.h>
#include <optim/shard_layout.h>
#include <torch/csrc/autograd/custom_function.h>

#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Whether this thread runs a checkpointed forward: what it calls is a part of it.
thread_local bool inside = false;

struct Inside {
  Inside() : before(std::exchange(inside, true)) {}
  ~Inside() { inside = before; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  bool before;
};

// While it lives, the generators go on from `states`. Afterwards they are where they were.
struct Replayed {
  Replayed(c10::Device device, const GeneratorStates& states) : before(device) { states.restore(); }
  ~Replayed() { before.restore(); }
  Replayed(const Replayed&) = delete;
  Replayed& operator=(const Replayed&) = delete;
  GeneratorStates before;
};

// What a call keeps for its second run, besides its input.
struct Kept : torch::CustomClassHolder {
  Kept(std::shared_ptr<Module> called, variable_list trained, c10::Device device)
      : module(std::move(called)), parameters(std::move(trained)), states(device) {}
  std::shared_ptr<Module> module;
  variable_list parameters;
  GeneratorStates states;  // before the first run
};

variable_list trained_parameters(const Module& module) {
  variable_list trained;
  for (const auto& [name, parameter] : distinct_parameters(module))
    if (parameter.requires_grad()) trained.push_back(parameter);
  return trained;
}

// A parameter without memory belongs to a unit inside: those of the module itself, and of what is
// around it, are unsharded while it runs.
void refuse_units_inside(const Module& module) {
  for (const auto& [name, parameter] : distinct_parameters(module)) {
    if (parameter.numel() == 0 || parameter.storage().nbytes() > 0) continue;
    throw std::logic_error("checkpoint_activations: parameter " + name + " of " + module.name() +
                           " lies in a unit inside it; checkpoint the module of the unit instead");
  }
}

// The gradients of the input and of the parameters, by a second run.
variable_list second_run(const Kept& kept, const at::Tensor& input, const at::Tensor& gradient) {
  const Inside part_of_this;
  const at::Tensor again = input.detach().requires_grad_(input.requires_grad());
  at::Tensor output;
  {
    const Replayed replayed(input.device(), kept.states);
    const at::AutoGradMode record(true);
    output = kept.module->forward(again);
  }
  variable_list wanted;
  if (again.requires_grad()) wanted.push_back(again);
  wanted.insert(wanted.end(), kept.parameters.begin(), kept.parameters.end());
  variable_list gradients(wanted.size());
  if (output.requires_grad()) {
    gradients = torch::autograd::grad({output}, wanted, {gradient}, /*retain_graph=*/false,
                                      /*create_graph=*/false, /*allow_unused=*/true);
  }
  if (!again.requires_grad()) gradients.insert(gradients.begin(), at::Tensor());
  return gradients;
}

struct RunAgain : torch::autograd::Function<RunAgain> {
  // The parameters are inputs so that the node has edges to them.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            at::TensorList /*parameters*/, c10::intrusive_ptr<Kept> kept) {
    context->set_materialize_grads(false);
    context->save_for_backward({input});
    const Inside part_of_this;
    const at::Tensor output = kept->module->forward(input);
    refuse_units_inside(*kept->module);  // one that was gathered ahead of its call, too
    context->saved_data["kept"] = c10::IValue::make_capsule(std::move(kept));
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto held = context->saved_data["kept"].toCapsule();
    const auto& kept = static_cast<const Kept&>(*held);
    const at::Tensor input = context->get_saved_variables()[0];
    variable_list results(1 + kept.parameters.size());
    if (gradients[0].defined()) results = second_run(kept, input, gradients[0]);
    results.emplace_back();  // for `kept`
    return results;
  }
};

at::Tensor call_checkpointed(Module& module, at::Tensor input) {
  if (inside || !at::GradMode::is_enabled()) return module.forward(std::move(input));
  refuse_units_inside(module);
  auto self = std::dynamic_pointer_cast<Module>(module.shared_from_this());
  const variable_list parameters = trained_parameters(module);
  const auto device = input.device();
  return RunAgain::apply(input, at::TensorList(parameters),
                         c10::make_intrusive<Kept>(std::move(self), parameters, device));
}

}  // namespace

void checkpoint_activations(Module& module) {
  module.set_forward(call_checkpointed);
}

}  // namespace fsdp
