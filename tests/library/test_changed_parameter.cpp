#include <torch/nn/utils/convert_parameters.h>

#include <library/misuse.h>

// Tests changes of parameters that would be lost: either the model computes with another copy of
// the values at that moment, or the model does not know the changed tensor. Each of these changes
// must cause an error.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(ChangedParameter);

void register_late(ShardedNet& one) {
  one.net->register_module("late", std::make_shared<LayerBlock>());
}
void replace_weight(ShardedNet& one) {
  weight_of(one).set_data(at::ones({7, 7}));
}

LASTING_MISUSE_TEST(ChangedParameter,
                    model_parameters_throws_if_a_parameter_was_registered_after_sharding,
                    "parameter late.linear.weight was registered after", [](ShardedNet& one) {
                      register_late(one);
                      one.model.parameters();
                    })

LASTING_MISUSE_TEST(ChangedParameter, a_step_throws_if_a_parameter_was_registered_after_sharding,
                    "parameter late.linear.weight was registered after", [](ShardedNet& one) {
                      register_late(one);
                      backward(one);
                    })

LASTING_MISUSE_TEST(ChangedParameter,
                    state_dict_throws_if_a_parameter_was_registered_after_sharding,
                    "parameter late.linear.weight was registered after", [](ShardedNet& one) {
                      register_late(one);
                      one.model.state_dict();
                    })

LASTING_MISUSE_TEST(ChangedParameter, the_next_call_of_the_model_throws_if_a_parameter_was_replaced,
                    "b0.linear.weight of unit b0 was replaced", [](ShardedNet& one) {
                      replace_weight(one);
                      backward(one);
                    })

LASTING_MISUSE_TEST(ChangedParameter, state_dict_throws_if_a_parameter_was_replaced,
                    "b0.linear.weight of unit b0 was replaced", [](ShardedNet& one) {
                      replace_weight(one);
                      one.model.state_dict();
                    })

// The optimizer is AdamW, whose step changes elements on every rank.
MISUSE_TEST(ChangedParameter, an_optimizer_step_between_forward_and_backward_is_refused,
            "was changed since its forward", [](ShardedNet& one) {
              backward(one);
              const at::Tensor loss = loss_of(*one.net, one.rank);
              adamw(one.model.parameters())->step();
              loss.backward();
            })

// After a forward with gradients the root stays unsharded, so a write to its parameter would be
// lost.
MISUSE_TEST(ChangedParameter, a_write_to_a_parameter_of_the_root_between_two_forwards_is_refused,
            "parameter scale of unit root was written to while it was gathered",
            [](ShardedNet& one) {
              loss_of(*one.net, one.rank);
              {
                const at::NoGradGuard no_grad;
                one.net->scale.mul_(2);
              }
              backward(one);
            })

MISUSE_TEST(ChangedParameter, a_call_of_the_model_inside_summon_full_params_is_refused,
            "called inside summon_full_params()", [](ShardedNet& one) {
              one.model.summon_full_params([&] { loss_of(*one.net, one.rank); });
            })

// The following functions change parameters in ways that users know. All of them are allowed
// between steps.
using Parameters = std::vector<at::Tensor>;
void change_through_data(const Parameters& parameters) {
  for (const at::Tensor& parameter : parameters)
    parameter.data().mul_(0.5);
}
void change_through_detach(const Parameters& parameters) {
  for (const at::Tensor& parameter : parameters)
    parameter.detach().mul_(0.5);
}
void change_by_set_data(const Parameters& parameters) {
  for (const at::Tensor& parameter : parameters)
    at::Tensor(parameter).set_data(parameter.detach() * 0.5);
}
void change_by_vector_to_parameters(const Parameters& parameters) {
  torch::nn::utils::vector_to_parameters(torch::nn::utils::parameters_to_vector(parameters) * 0.5,
                                         parameters);
}

// Expects an error that contains `says` if `change` changes model.parameters() at `moment`. The
// model has one unit, which is unsharded at that moment.
void expect_change_refused(
    int world_size, const std::string& says, void (*change)(const Parameters&),
    const std::function<void(ShardedNet&, const std::function<void()>&)>& moment) {
  const auto call = [=](ShardedNet& one) { moment(one, [&] { change(one.model.parameters()); }); };
  expect_refused(world_size, {says, call, /*goes_on=*/false}, {.wrap = wrap_none()});
}
void in_a_scope(ShardedNet& one, const std::function<void()>& change) {
  one.model.summon_full_params(change);
}
void before_backward(ShardedNet& one, const std::function<void()>& change) {
  const at::Tensor loss = loss_of(*one.net, one.rank);
  change();
  loss.backward();
}

MULTI_RANK_TEST(ChangedParameter,
                changing_model_parameters_through_data_inside_summon_full_params_is_refused) {
  expect_change_refused(world_size(), "outside of it", change_through_data, in_a_scope);
}
MULTI_RANK_TEST(ChangedParameter,
                changing_model_parameters_through_data_between_forward_and_backward_is_refused) {
  expect_change_refused(world_size(), "was changed since its forward", change_through_data,
                        before_backward);
}

MULTI_RANK_TEST(ChangedParameter,
                changing_model_parameters_through_detach_inside_summon_full_params_is_refused) {
  expect_change_refused(world_size(), "outside of it", change_through_detach, in_a_scope);
}
MULTI_RANK_TEST(ChangedParameter,
                changing_model_parameters_through_detach_between_forward_and_backward_is_refused) {
  expect_change_refused(world_size(), "was changed since its forward", change_through_detach,
                        before_backward);
}

MULTI_RANK_TEST(ChangedParameter,
                changing_model_parameters_by_set_data_inside_summon_full_params_is_refused) {
  expect_change_refused(world_size(), "outside of it", change_by_set_data, in_a_scope);
}
MULTI_RANK_TEST(ChangedParameter,
                changing_model_parameters_by_set_data_between_forward_and_backward_is_refused) {
  expect_change_refused(world_size(), "was changed since its forward", change_by_set_data,
                        before_backward);
}

MULTI_RANK_TEST(
    ChangedParameter,
    changing_model_parameters_by_vector_to_parameters_inside_summon_full_params_is_refused) {
  expect_change_refused(world_size(), "outside of it", change_by_vector_to_parameters, in_a_scope);
}
MULTI_RANK_TEST(ChangedParameter,
                changing_model_parameters_by_vector_to_parameters_before_backward_is_refused) {
  expect_change_refused(world_size(), "was changed since its forward",
                        change_by_vector_to_parameters, before_backward);
}

}  // namespace
}  // namespace fsdp
