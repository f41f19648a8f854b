#include <c10/util/ScopeExit.h>
#include <checkpoint_activations.h>
#include <memory/storage_guard.h>
#include <nn/generator_states.h>
#include <optim/shard_layout.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

thread_local bool runs_again = false;  // whether a forward() inside is a part of a second run

// What a call needs for its second run, besides tensors.
struct FirstRun : torch::CustomClassHolder {
  FirstRun(std::shared_ptr<Module> called, c10::Device device)
      : module(std::move(called)), generators(device) {}

  // forward() with gradients recorded, and with the numbers that the call drew.
  at::Tensor again(const at::Tensor& input) const {
    const GeneratorStates now(input.device());
    const auto put_back = c10::make_scope_exit([&, before = std::exchange(runs_again, true)] {
      runs_again = before;
      now.restore();
    });
    generators.restore();
    const at::AutoGradMode recorded(true);
    return module->forward(input);
  }

  std::shared_ptr<Module> module;
  GeneratorStates generators;  // before the call
};

// One node in the place of all that a call makes. Its inputs: parameters, and then the input.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static at::Tensor forward(AutogradContext* context, at::TensorList parameters,
                            const at::Tensor& input, const std::shared_ptr<Module>& module) {
    variable_list saved = parameters.vec();
    saved.push_back(input);
    context->save_for_backward(std::move(saved));
    context->set_materialize_grads(false);
    context->saved_data["call"] =
        c10::IValue::make_capsule(c10::make_intrusive<FirstRun>(module, input.device()));
    // A view as the output of a custom function could not be changed in place.
    const at::Tensor output = module->forward(input);
    return output.is_view() ? output.detach() : output;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    variable_list inputs = context->get_saved_variables();
    inputs.back() = inputs.back().detach().requires_grad_(inputs.back().requires_grad());
    variable_list results(inputs.size() + 1);  // that of the module stays undefined
    if (!gradients.front().defined()) return results;

    const auto call = context->saved_data["call"].toCapsule();
    const at::Tensor output = static_cast<const FirstRun&>(*call).again(inputs.back());
    if (!output.requires_grad()) return results;  // it depends on none of the inputs
    if (!inputs.back().requires_grad()) inputs.pop_back();
    // Returns gradients and accumulates none: that is for the pass that runs this node.
    std::ranges::move(torch::autograd::grad({output}, inputs, gradients, /*retain_graph=*/false,
                                            /*create_graph=*/false, /*allow_unused=*/true),
                      results.begin());
    return results;
  }
};

// The distinct parameters of the module that require a gradient. Throws if one is freed.
variable_list parameters_of(const Module& module) {
  variable_list trained;
  for (const auto& [name, parameter] : distinct_parameters(module)) {
    if (is_freed(parameter)) {
      throw std::logic_error("checkpoint_activations: parameter " + name + " of a checkpointed " +
                             module.name() +
                             " is sharded in the call; no unit may lie inside a checkpointed "
                             "module");
    }
    if (parameter.requires_grad()) trained.push_back(parameter);
  }
  return trained;
}

}  // namespace

void checkpoint_activations(Module& module) {
  module.set_forward([](Module& called, torch::Tensor input) {
    if (runs_again || !at::GradMode::is_enabled()) return called.forward(std::move(input));
    const auto shared = std::dynamic_pointer_cast<Module>(called.shared_from_this());
    const variable_list parameters = parameters_of(called);
    return Checkpoint::apply(at::TensorList(parameters), input, shared);
  });
}

}  // namespace fsdp
