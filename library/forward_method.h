#pragma once

#include <nn/module.h>
#include <visit_tensors.h>

#include <optional>
#include <type_traits>

namespace fsdp {

// PyTorch's register_fsdp_forward_method(): runs `method` between the hooks of a call of `module`,
// so that the module's parameters are unsharded. `method` calls a member function of `module` that
// is not forward():
//
//   const at::Tensor code = forward_method(*net, [&] { return net->encode(x); });
//
// `method` must return a value in which visit_tensors() finds every tensor, and at least one. The
// gradients of the module's unit are reduced at the end of the backward pass.
template <class Method>
auto forward_method(Module& module, const Method& method) {
  using Output = std::decay_t<decltype(method())>;
  static_assert(TensorsInside<Output>::kFound && !TensorsInside<Output>::kHidden,
                "a forward method must return tensors that visit_tensors() finds");
  struct Opened : Module {
    using Module::run_between_hooks;
    using Module::TensorPlaces;
  };
  constexpr auto run = &Opened::run_between_hooks;
  std::optional<Output> output;
  (module.*run)({}, [&] {
    output.emplace(method());
    typename Opened::TensorPlaces places;
    visit_tensors(*output, [&](at::Tensor& tensor) { places.push_back(&tensor); });
    return places;
  });
  return std::move(*output);
}

}  // namespace fsdp
