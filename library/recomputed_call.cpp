#include <ATen/autocast_mode.h>
#include <memory/storage_guard.h>
#include <nn/generator_states.h>
#include <nn/thread_settings.h>
#include <optim/shard_layout.h>
#include <recomputed_call.h>
#include <torch/csrc/autograd/custom_function.h>

#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace fsdp {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

thread_local bool runs_again = false;  // whether this thread runs a forward() for the second time

// The states of the generators and the settings of this thread, on which a forward() depends
// besides its inputs and parameters.
struct Surroundings {
  explicit Surroundings(c10::Device device) : generators(device) {}
  void restore() const {
    generators.restore();
    settings.restore();
  }
  GeneratorStates generators;
  ThreadSettings settings;
};

// While this object lives, this thread runs a forward() for the second time, with the generator
// states and thread settings of the first run. The destructor restores the states and settings that
// the thread had before this object was made.
class SecondRun {
 public:
  SecondRun(const Surroundings& first, c10::Device device)
      : first_(first), before_(device), outer_(std::exchange(runs_again, true)) {
    first.restore();
  }
  SecondRun(const SecondRun&) = delete;
  ~SecondRun() {
    // Empties autocast's cache, because a later forward() under autocast must not use a cast that
    // was made before an optimizer's step.
    if (first_.settings.autocast()) at::autocast::clear_cache();
    before_.restore();
    runs_again = outer_;
  }

 private:
  const Surroundings& first_;
  Surroundings before_;
  bool outer_;
};

// A call of a checkpointed module: what backward needs to run forward() of the call a second time.
// The autograd graph owns this object.
struct CallToRepeat : torch::CustomClassHolder {
  CallToRepeat(Module& called, c10::Device where,
               std::function<variable_list(const variable_list&)> run_again)
      : owner(called.shared_from_this()),
        module(called),
        device(where),
        first(where),
        again(std::move(run_again)) {}

  std::shared_ptr<torch::nn::Module> owner;  // keeps `module` alive
  Module& module;
  c10::Device device;
  Surroundings first;  // the generators' states and the thread's settings when the call began
  std::function<variable_list(const variable_list&)> again;
};

// Returns the device of the first input that is defined. If there is none, returns the device of
// the module's first parameter; the CPU for a module without parameters.
c10::Device device_of_call(const Module& module, const variable_list& inputs) {
  for (const at::Tensor& input : inputs)
    if (input.defined()) return input.device();
  const auto parameters = distinct_parameters(module);
  return parameters.empty() ? c10::Device(c10::kCPU) : parameters.front().tensor.device();
}

[[noreturn]] void refuse_call(const Module& module, const std::string& what) {
  throw std::logic_error("checkpoint_activations: " + module.name() + ": " + what);
}

variable_list trainable_parameters(const Module& module) {
  variable_list trainable;
  for (const auto& [name, parameter] : distinct_parameters(module)) {
    if (is_freed(parameter))
      refuse_call(module, "a unit inside it holds parameter " + name +
                              "; checkpoint modules that have no unit inside");
    if (parameter.requires_grad()) trainable.push_back(parameter);
  }
  return trainable;
}

void require_gathered(const Module& module) {
  for (const auto& [name, parameter] : distinct_parameters(module))
    if (is_freed(parameter))
      refuse_call(module, "backward runs its forward() again, but parameter " + name +
                              " is sharded there; let reads_parameters_in_backward() of its unit's "
                              "module return true");
}

// The distinct defined tensors of a list. A node of the graph has one gradient for each of them.
struct Distinct {
  explicit Distinct(const variable_list& all) {
    std::map<const c10::TensorImpl*, size_t> known;
    for (const at::Tensor& tensor : all) {
      if (!tensor.defined()) {
        places.emplace_back();
        continue;
      }
      const auto [at, is_new] = known.emplace(tensor.unsafeGetTensorImpl(), tensors.size());
      if (is_new) tensors.push_back(tensor);
      places.emplace_back(at->second);
    }
  }
  variable_list tensors;
  // Has an element for each tensor of the list: the index of the tensor in `tensors`, or no value
  // if the tensor is undefined.
  std::vector<std::optional<size_t>> places;
};

// Returns one tensor for each element of `places`, which is Distinct::places: the tensor of
// `values` with this index, or an undefined tensor if the element has no value.
variable_list at_places(const std::vector<std::optional<size_t>>& places,
                        const variable_list& values) {
  variable_list all;
  for (const auto& place : places)
    all.push_back(place ? values.at(*place) : at::Tensor());
  return all;
}

// Returns, for each of `inputs`, a leaf tensor with the same values and requires_grad. The leaf is
// not connected to the autograd graph that computed the input.
variable_list as_leaves(const variable_list& inputs) {
  variable_list leaves;
  for (const at::Tensor& input : inputs)
    leaves.push_back(input.detach().set_requires_grad(input.requires_grad()));
  return leaves;
}

// The autograd function of a call whose backward runs the module's forward() again. The parameters
// are inputs of its node too, so the engine handles the gradients that backward() returns for them
// as those of any node.
struct RecomputedCall : torch::autograd::Function<RecomputedCall> {
  static variable_list forward(AutogradContext* context, at::TensorList parameters,
                               at::TensorList inputs, const c10::intrusive_ptr<CallToRepeat>& call,
                               const std::function<variable_list()>& first) {
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    context->saved_data["parameters"] = static_cast<int64_t>(parameters.size());
    variable_list saved = parameters.vec();
    saved.insert(saved.end(), inputs.begin(), inputs.end());
    context->save_for_backward(saved);
    return first();
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto held = context->saved_data["call"].toCapsule();
    const auto& call = static_cast<CallToRepeat&>(*held);
    const variable_list saved = context->get_saved_variables();
    const auto parameters = saved.begin() + context->saved_data["parameters"].toInt();
    require_gathered(call.module);
    const variable_list inputs = as_leaves({parameters, saved.end()});
    variable_list outputs;
    {
      const SecondRun scope(call.first, call.device);
      outputs = call.again(inputs);
    }
    if (outputs.size() != gradients.size())
      refuse_call(call.module, "its forward() has returned " + std::to_string(gradients.size()) +
                                   " different tensors, and in backward " +
                                   std::to_string(outputs.size()));
    return gradients_of(outputs, gradients, {saved.begin(), parameters}, inputs);
  }

  // Returns the gradients for all arguments of forward(): undefined ones for inputs that require
  // none, and for the last two arguments, `call` and `first`.
  static variable_list gradients_of(const variable_list& outputs, const variable_list& gradients,
                                    const variable_list& parameters, const variable_list& inputs) {
    variable_list from, arrived, to = parameters;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].requires_grad() || !gradients[i].defined()) continue;
      from.push_back(outputs[i]);
      arrived.push_back(gradients[i]);
    }
    for (const at::Tensor& input : inputs)
      if (input.requires_grad()) to.push_back(input);
    variable_list found(to.size());
    if (!from.empty())
      found = torch::autograd::grad(from, to, arrived, /*retain_graph=*/std::nullopt,
                                    /*create_graph=*/false, /*allow_unused=*/true);
    variable_list all(found.begin(), found.begin() + static_cast<int64_t>(parameters.size()));
    size_t next = parameters.size();
    for (const at::Tensor& input : inputs)
      all.push_back(input.requires_grad() ? found[next++] : at::Tensor());
    all.resize(all.size() + 2);
    return all;
  }
};

}  // namespace

bool needs_recomputation(const Module& module) {
  return at::GradMode::is_enabled() && !runs_again && module.reads_parameters_in_backward();
}

variable_list recomputed_call(
    Module& module, const variable_list& inputs, const std::function<variable_list()>& first,
    const std::function<variable_list(const variable_list& inputs)>& again) {
  const variable_list parameters = trainable_parameters(module);
  const Distinct from(inputs);
  const auto run_again = [places = from.places, again](const variable_list& leaves) {
    return Distinct(again(at_places(places, leaves))).tensors;
  };
  std::optional<Distinct> outputs;
  const std::function<variable_list()> run_first = [&] { return outputs.emplace(first()).tensors; };
  const auto call =
      c10::make_intrusive<CallToRepeat>(module, device_of_call(module, inputs), run_again);
  const variable_list made = RecomputedCall::apply(at::TensorList(parameters),
                                                   at::TensorList(from.tensors), call, run_first);
  return at_places(outputs->places, made);
}

}  // namespace fsdp
