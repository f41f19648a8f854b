#pragma once

#include <nn/module.h>
#include <visit_tensors.h>

#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace fsdp {

// The base class of a Module that is not called with one tensor. Its two functions throw
// std::logic_error, because they are for a Module that takes one tensor and returns one.
class NonTensorModule : public Module {
 public:
  using Module::Module;
  torch::Tensor forward(torch::Tensor input) final;
  void set_forward(Forward forward) final;
};

// The type in which a call holds an input until it runs forward(). Hooks can replace the tensors of
// an input, so an input that forward() takes by const reference is copied if visit_tensors() can
// find tensors in it.
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

#pragma GCC diagnostic push  // hides Module::forward() on purpose: its arguments differ
#pragma GCC diagnostic ignored "-Woverloaded-virtual"
  virtual Output forward(Inputs... inputs) = 0;
#pragma GCC diagnostic pop

  Output operator()(HookedArgument<Inputs>... inputs) {
    TensorPlaces places;
    (add_places<HookedArgument<Inputs>>(inputs, places), ...);
    std::optional<Output> output;
    run_between_hooks(places, [&] {
      output.emplace(forward(std::forward<Inputs>(inputs)...));
      TensorPlaces outputs;
      add_places<Output>(*output, outputs);
      return outputs;
    });
    return std::move(*output);
  }

 private:
  // Adds the tensors in `value` to `places`. Adds none of a reference, because what it refers to
  // belongs to the caller.
  template <class Value>
  static void add_places(Value& value, TensorPlaces& places) {
    if constexpr (!std::is_reference_v<Value>)
      visit_tensors(value, [&](at::Tensor& tensor) { places.push_back(&tensor); });
  }
};

// A ModuleOf that takes one tensor and returns one is a Module.
template <>
class ModuleOf<at::Tensor(at::Tensor)> : public Module {
 public:
  using Module::Module;
};

}  // namespace fsdp
