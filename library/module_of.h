#pragma once

#include <nn/module.h>
#include <recomputed_call.h>
#include <visit_tensors.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace fsdp {

class NonTensorModule;

// Does the same as checkpoint_activations(Module&), for a module with inputs and outputs of any
// types. In addition:
// - A call copies its arguments for the second run of forward(), but not the tensors in them. If an
//   argument refers to other data, as a pointer does, forward() must not change the data.
// - Gradients reach the tensors that visit_tensors() finds among the inputs.
// - If a checkpointed module is called inside another checkpointed module, the inner call is a part
//   of the outer call.
// Throws std::logic_error, which names the input, if an input is taken by reference without const,
// can't be copied, or can hide a tensor from visit_tensors().
void checkpoint_activations(NonTensorModule& module);

// The base class of a Module whose forward() does not take one tensor and return one. Its functions
// forward(torch::Tensor) and set_forward() throw std::logic_error, because they are for a
// Module that takes one tensor and returns one.
class NonTensorModule : public Module {
 public:
  using Module::Module;
  NonTensorModule() = default;
  // A copy of a checkpointed module is not checkpointed.
  NonTensorModule(const NonTensorModule& other) : Module(other) {}
  torch::Tensor forward(torch::Tensor input) final;
  void set_forward(Forward forward) final;

 protected:
  bool is_checkpointed() const { return is_checkpointed_; }

 private:
  friend void checkpoint_activations(NonTensorModule& module);
  // Returns why checkpoint_activations() can't run forward() of this module a second time; "" if it
  // can.
  virtual std::string reason_not_to_repeat() const = 0;
  bool is_checkpointed_{};
};

// Returns why an argument of type Input can't be passed to a second run of forward(); "" if it can.
template <class Input>
constexpr std::string_view reason_not_to_repeat() {
  using Value = std::remove_cvref_t<Input>;
  if constexpr (std::is_lvalue_reference_v<Input> &&
                !std::is_const_v<std::remove_reference_t<Input>>) {
    return "it is taken by reference, so forward() may change it; take a value or const &";
  } else if constexpr (!std::is_copy_constructible_v<Value>) {
    return "it can't be copied";
  } else if constexpr (TensorsInside<Value>::kHidden) {
    return "tensors could hide in it; a class lists its tensors in a member: "
           "auto tensors() { return std::tie(keys, values); }";
  } else {
    return "";
  }
}

// The type in which a call of a ModuleOf holds an argument of type Input until it runs forward().
// Hooks can replace the tensors in an argument. So if forward() takes a const reference, and
// visit_tensors() can find tensors in the argument, the call holds a copy of the argument.
template <class Input>
using HookedArgument = std::conditional_t<std::is_lvalue_reference_v<Input> &&
                                              (!std::is_const_v<std::remove_reference_t<Input>> ||
                                               !TensorsInside<std::remove_cvref_t<Input>>::kFound),
                                          Input, std::remove_cvref_t<Input>>;

// A Module with inputs and an output of any types:
//
//   struct Attention
//       : ModuleOf<std::pair<at::Tensor, Cache>(at::Tensor x, Cache cache, int heads)> {
//     std::pair<at::Tensor, Cache> forward(at::Tensor x, Cache cache, int heads) override;
//   };
//
// - Call it by its own type: attention(x, cache, 4). Hooks see one call, so it can be a unit.
// - visit_tensors() finds the tensors among the inputs and in the output. Everything else is passed
//   unchanged, and so is an argument that is taken by reference without const.
// - The backward pre-hooks run once, when the first gradient of an output arrives; the full
//   backward hooks run once, when the gradients of all inputs that require one are complete.
// - A tensor must not hide in the output: a backward pass that enters the module at a hidden tensor
//   would read sharded parameters.
// - A module of one tensor that returns something else takes const at::Tensor&, because
//   forward(at::Tensor) belongs to Module.
template <class Signature>
class ModuleOf;

template <class Output, class... Inputs>
class ModuleOf<Output(Inputs...)> : public NonTensorModule {
  static_assert(!std::is_same_v<std::tuple<Inputs...>, std::tuple<at::Tensor>>,
                "a module of one tensor must take const at::Tensor&, unless it returns a tensor");
  static_assert(std::is_same_v<Output, std::decay_t<Output>>,
                "a module must return a value, not a reference");
  static_assert(TensorsInside<Output>::kFound || TensorsInside<Output>::kHidden,
                "the output of a module must hold a tensor");
  static_assert(!TensorsInside<Output>::kHidden,
                "tensors could hide in the output; a class lists its tensors in a member: "
                "auto tensors() { return std::tie(keys, values); }");

 public:
  using NonTensorModule::NonTensorModule;

#pragma GCC diagnostic push  // forward(Inputs...) hides Module::forward(at::Tensor) on purpose
#pragma GCC diagnostic ignored "-Woverloaded-virtual"
  virtual Output forward(Inputs... inputs) = 0;
#pragma GCC diagnostic pop

  Output operator()(HookedArgument<Inputs>... inputs) {
    TensorPlaces places;
    (add_places<HookedArgument<Inputs>>(inputs, places), ...);
    std::optional<Output> output;
    run_between_hooks(places, [&] {
      if constexpr (kRepeatable)
        if (is_checkpointed() && needs_recomputation(*this))
          return run_checkpointed(places, output, inputs...);
      output.emplace(forward(std::forward<Inputs>(inputs)...));
      return places_in(*output);
    });
    return std::move(*output);
  }

 private:
  using Tensors = torch::autograd::variable_list;
  static constexpr bool kRepeatable = (fsdp::reason_not_to_repeat<Inputs>().empty() && ...);

  std::string reason_not_to_repeat() const override {
    std::string reason;
    int number = 0;
    const auto look_at = [&](std::string_view of_input) {
      ++number;
      if (reason.empty() && !of_input.empty())
        reason = "input " + std::to_string(number) + ": " + std::string(of_input);
    };
    (look_at(fsdp::reason_not_to_repeat<Inputs>()), ...);
    return reason;
  }

  // Makes a checkpointed call with recomputed_call(): runs forward() now, and again in backward.
  // Stores the result in `output`. Returns pointers to the tensors in `output`.
  TensorPlaces run_checkpointed(const TensorPlaces& places, std::optional<Output>& output,
                                HookedArgument<Inputs>&... inputs) {
    // `copies` are the arguments for the second run of forward(). put({}, copies) takes the tensors
    // out of them, because the graph keeps the input tensors and frees them after backward.
    std::tuple<std::remove_cvref_t<Inputs>...> copies(inputs...);
    require_copied_tensors(places, copies);
    put({}, copies);
    const auto first = [&] {
      output.emplace(forward(std::forward<Inputs>(inputs)...));
      return tensors_at(places_in(*output));
    };
    const auto again = [this, copies = std::move(copies)](const Tensors& tensors) {
      auto own = copies;
      put(tensors, own);
      Output second =
          std::apply([&](auto&... values) { return forward(static_cast<Inputs>(values)...); }, own);
      return tensors_at(places_in(second));
    };
    const Tensors made = recomputed_call(*this, tensors_at(places), first, again);
    put(made, *output);
    return places_in(*output);
  }

  // Throws std::logic_error if a copied argument holds the at::Tensor objects of the original
  // argument, and not copies of these objects: a class whose tensors() lists tensors behind a
  // pointer does so.
  template <class Copies>
  void require_copied_tensors(const TensorPlaces& places, Copies& copies) const {
    visit_tensors(copies, [&](const at::Tensor& tensor) {
      if (std::find(places.begin(), places.end(), &tensor) != places.end())
        throw std::logic_error("checkpoint_activations: " + this->name() +
                               ": copies of an input share its tensors, which its tensors() lists "
                               "through a pointer");
    });
  }
  // Assigns `tensors`, in order, to the tensors that visit_tensors() finds in `value`. If `tensors`
  // is empty, makes all tensors in `value` undefined.
  template <class Value>
  static void put(const Tensors& tensors, Value& value) {
    size_t next = 0;
    visit_tensors(value, [&](at::Tensor& tensor) {
      tensor = tensors.empty() ? at::Tensor() : tensors.at(next++);
    });
  }
  static Tensors tensors_at(const TensorPlaces& places) {
    Tensors tensors;
    for (const at::Tensor* place : places)
      tensors.push_back(*place);
    return tensors;
  }
  static TensorPlaces places_in(Output& output) {
    TensorPlaces places;
    add_places<Output>(output, places);
    return places;
  }
  // Adds pointers to the tensors in `value` to `places`. If Value is a reference type, adds
  // nothing, because the object that it refers to belongs to the caller.
  template <class Value>
  static void add_places(Value& value, TensorPlaces& places) {
    if constexpr (!std::is_reference_v<Value>)
      visit_tensors(value, [&](at::Tensor& tensor) { places.push_back(&tensor); });
  }
};

// A ModuleOf that takes one tensor and returns one is an ordinary Module, with the virtual
// forward() of Module.
template <>
class ModuleOf<at::Tensor(at::Tensor)> : public Module {
 public:
  using Module::Module;
};

}  // namespace fsdp
