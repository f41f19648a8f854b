#include <checkpoint_activations.h>
#include <nn/generator_states.h>
#include <optim/shard_layout.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// While it lives, this thread runs a forward for the second time: with gradients recorded, and from
// the generators' states of the first time.
class SecondRun {
 public:
  SecondRun(c10::Device device, const GeneratorStates& first)
      : found_(device), outer_(std::exchange(alive, true)) {
    first.restore();
  }
  ~SecondRun() {
    alive = outer_;
    found_.restore();
  }
  SecondRun(const SecondRun&) = delete;  // it puts the generators back once

  static bool under_way() { return alive; }

 private:
  static thread_local bool alive;
  GeneratorStates found_;
  bool outer_;
  at::AutoGradMode recording_{true};
};

thread_local bool SecondRun::alive = false;

// One call of a checkpointed module: what it takes to run it again, except for its input.
class CheckpointedCall : public torch::CustomClassHolder {
 public:
  CheckpointedCall(Module& module, c10::Device device)
      : owner_(module.shared_from_this()), module_(module), generators_(device) {
    for (NamedParameter& parameter : distinct_parameters(module)) {
      if (parameter.tensor.requires_grad()) parameters_.push_back(std::move(parameter.tensor));
    }
  }

  const variable_list& parameters() const { return parameters_; }

  torch::Tensor run(const torch::Tensor& input) const {
    torch::Tensor output = module_.forward(input);
    check_no_unit_inside();
    return output;
  }

  // The gradients of the input and of the parameters. They are undefined where there are none.
  variable_list run_again(const torch::Tensor& input, const torch::Tensor& gradient) const {
    const SecondRun second(input.device(), generators_);
    const torch::Tensor again = input.detach().requires_grad_(input.requires_grad());
    const torch::Tensor output = module_.forward(again);
    variable_list gradients(1 + parameters_.size());
    if (!output.requires_grad()) return gradients;
    variable_list leaves = parameters_;
    if (again.requires_grad()) leaves.push_back(again);
    variable_list computed =
        torch::autograd::grad({output}, leaves, {gradient}, /*retain_graph=*/std::nullopt,
                              /*create_graph=*/false, /*allow_unused=*/true);
    if (again.requires_grad()) gradients[0] = std::exchange(computed.back(), torch::Tensor());
    std::move(computed.begin(), computed.begin() + std::ssize(parameters_), gradients.begin() + 1);
    return gradients;
  }

 private:
  // A unit inside has resharded its parameters when the run ends; one around it has not.
  void check_no_unit_inside() const {
    for (const auto& [name, tensor] : distinct_parameters(module_)) {
      if (tensor.numel() == 0 || tensor.storage().nbytes() > 0) continue;
      throw std::logic_error("checkpoint_activations: the parameter '" + name +
                             "' belongs to a unit inside the checkpointed module; checkpoint the "
                             "unit's module, or one inside it");
    }
  }

  std::shared_ptr<torch::nn::Module> owner_;  // the graph of a call keeps the module
  Module& module_;
  GeneratorStates generators_;  // before the first run
  variable_list parameters_;    // distinct, those that require a gradient
};

// The node of a call: its inputs are the input and the parameters, so their gradients arrive in the
// pass that asks for them.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& input,
                               at::TensorList /*parameters*/,
                               const c10::intrusive_ptr<CheckpointedCall>& call) {
    context->set_materialize_grads(false);
    context->save_for_backward({input});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    torch::Tensor output = call->run(input);
    // The caller may change its output in place, and would not be allowed to through a view that
    // was made in here.
    const bool own_memory = output.has_storage() && !output.is_alias_of(input);
    return output.is_view() && own_memory ? output.variable_data() : output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto held = context->saved_data["call"].toCapsule();
    const auto& call = static_cast<const CheckpointedCall&>(*held);
    const torch::Tensor input = context->get_saved_variables().front();
    variable_list result = gradients[0].defined() ? call.run_again(input, gradients[0])
                                                  : variable_list(1 + call.parameters().size());
    result.emplace_back();  // of the call
    return result;
  }
};

}  // namespace

void checkpoint_activations(Module& module) {
  module.set_forward([](Module& called, torch::Tensor input) {
    if (!at::GradMode::is_enabled() || SecondRun::under_way()) {
      return called.forward(std::move(input));
    }
    const auto call = c10::make_intrusive<CheckpointedCall>(called, input.device());
    return Checkpoint::apply(input, at::TensorList(call->parameters()), call);
  });
}

}  // namespace fsdp
