#include <sharded_optimizer.h>
#include <torch/nn/utils/clip_grad.h>

#include <library/misuse.h>

// The gradients of a sharded model are in .grad of model.parameters(). The parameters of the module
// itself are views of unsharded memory and have no gradient.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(MisplacedGradient);

const char* const kParameters = "model.parameters()";

template <class Optimizer, class Options>
void step_of_the_modules_parameters(ShardedNet& one, const Options& options) {
  Optimizer optimizer(one.net->parameters(), options);
  backward(one);
  optimizer.step();
}

void put_gradients_into_the_module(ShardedNet& one) {
  for (at::Tensor& parameter : one.net->parameters())
    parameter.mutable_grad() = at::ones(parameter.sizes());
}

MISUSE_TEST(MisplacedGradient, sgd_over_the_modules_parameters_is_refused, kParameters,
            [](ShardedNet& one) {
              step_of_the_modules_parameters<torch::optim::SGD>(one, torch::optim::SGDOptions(0.1));
            })

MISUSE_TEST(MisplacedGradient, adamw_over_the_modules_parameters_is_refused, kParameters,
            [](ShardedNet& one) {
              step_of_the_modules_parameters<torch::optim::AdamW>(one,
                                                                  torch::optim::AdamWOptions(0.1));
            })

MISUSE_TEST(MisplacedGradient,
            an_optimizer_step_over_the_modules_parameters_after_zero_grad_is_refused, kParameters,
            [](ShardedNet& one) {
              backward(one);
              one.model.zero_grad();
              torch::optim::SGD(one.net->parameters(), torch::optim::SGDOptions(0.1)).step();
            })

MISUSE_TEST(MisplacedGradient, clipping_the_gradients_of_the_modules_parameters_is_refused,
            "model.clip_grad_norm_()", [](ShardedNet& one) {
              backward(one);
              torch::nn::utils::clip_grad_norm_(one.net->parameters(), 1.0);
            })

// Because the test has called model.parameters(), backward puts the gradients into .grad of these
// leaves, where a ShardedOptimizer over the units does not look.
MISUSE_TEST(MisplacedGradient,
            an_optimizer_over_the_units_finds_no_gradient_once_model_parameters_was_called,
            "has no gradient", [](ShardedNet& one) {
              const auto& comm = one.rank.communicator();
              const auto optimizer = make_sharded_optimizer(one.model.units(), {{"", {}}}, comm);
              backward(one);
              optimizer->step();
            })

MISUSE_TEST(MisplacedGradient, autograd_grad_of_the_modules_parameters_is_refused,
            "take .grad of model.parameters()", [](ShardedNet& one) {
              torch::autograd::grad({loss_of(*one.net, one.rank)}, one.net->parameters());
            })

MISUSE_TEST(MisplacedGradient, an_optimizer_step_with_gradients_put_into_the_module_is_refused,
            "reduce them", [](ShardedNet& one) {
              put_gradients_into_the_module(one);
              one.optimizer->step();
            })

MISUSE_TEST(MisplacedGradient, a_backward_over_gradients_put_into_the_module_is_refused,
            "model.zero_grad()", [](ShardedNet& one) {
              put_gradients_into_the_module(one);
              backward(one);
            })

MISUSE_TEST(MisplacedGradient, a_backward_with_create_graph_is_refused,
            "create_graph has to be off", [](ShardedNet& one) {
              loss_of(*one.net, one.rank)
                  .backward({}, /*retain_graph=*/true,
                            /*create_graph=*/true);
            })

MISUSE_TEST(MisplacedGradient, autograd_grad_of_the_input_with_create_graph_is_refused,
            "create_graph has to be off", [](ShardedNet& one) {
              const at::Tensor x = batch_part(0, 1, 0, {5, 7}).requires_grad_();
              const at::Tensor sum = (*one.net)(x).sum();
              torch::autograd::grad({sum}, {x}, {}, true, /*create_graph=*/true);
            })

}  // namespace
}  // namespace fsdp
