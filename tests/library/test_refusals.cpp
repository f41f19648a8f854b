#include <sharded_optimizer.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/nn/utils/convert_parameters.h>
#include <torch/optim/lbfgs.h>

#include <common/expect_text.h>
#include <library/misuse.h>
#include <library/models.h>
#include <library/one_process.h>

#include <limits>

// What goes wrong in silence, or by a signal, with fully_shard() alone.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(Refusals);

template <class Optimizer, class Options>
void step_of_the_modules_parameters(ShardedNet& one, const Options& options) {
  Optimizer optimizer(one.net->parameters(), options);
  backward(one);
  optimizer.step();
}

MULTI_RANK_TEST(Refusals, of_gradients_in_a_wrong_place_say_where_they_belong) {
  const char* const parameters = "model.parameters()";
  const auto sgd = torch::optim::SGDOptions(0.1);
  const auto put = [](ShardedNet& one) {
    for (at::Tensor& parameter : one.net->parameters())
      parameter.mutable_grad() = at::ones(parameter.sizes());
  };
  const auto create_graph = [](const at::Tensor& loss) {
    loss.backward({}, /*retain_graph=*/true, /*create_graph=*/true);
  };
  expect_refused(
      world_size(),
      {{parameters,
        [&](ShardedNet& one) { step_of_the_modules_parameters<torch::optim::SGD>(one, sgd); }},
       {parameters,
        [](ShardedNet& one) {
          step_of_the_modules_parameters<torch::optim::AdamW>(one, torch::optim::AdamWOptions(0.1));
        }},
       {parameters,
        [&](ShardedNet& one) {
          backward(one);
          one.model.zero_grad();
          torch::optim::SGD(one.net->parameters(), sgd).step();
        }},
       {"model.clip_grad_norm_()",
        [](ShardedNet& one) {
          backward(one);
          torch::nn::utils::clip_grad_norm_(one.net->parameters(), 1.0);
        }},
       {"has no gradient",
        [](ShardedNet& one) {
          const auto& comm = one.rank.communicator();
          const auto optimizer = make_sharded_optimizer(one.model.units(), {{"", {}}}, comm);
          backward(one);  // to model.parameters(), which were asked for
          optimizer->step();
        }},
       {"take .grad of model.parameters()",
        [](ShardedNet& one) {
          torch::autograd::grad({loss_of(*one.net, one.rank)}, one.net->parameters());
        }},
       {"put those",
        [&](ShardedNet& one) {
          put(one);
          one.optimizer->step();
        }},
       {"model.zero_grad()",
        [&](ShardedNet& one) {
          put(one);
          backward(one);
        }},
       {"create_graph has to be off",
        [&](ShardedNet& one) { create_graph(loss_of(*one.net, one.rank)); }},
       {"create_graph has to be off", [](ShardedNet& one) {
          const at::Tensor x = batch_part(0, 1, 0, {5, 7}).requires_grad_();
          const at::Tensor sum = (*one.net)(x).sum();
          torch::autograd::grad({sum}, {x}, {}, true, /*create_graph=*/true);
        }}});
}

// That no step is made then, tests/properties shows.
MULTI_RANK_TEST(Refusals, of_incomplete_gradients_say_how_to_go_on) {
  const auto pass_in_no_sync = [](ShardedNet& one) {
    const NoSync no_sync = one.model.no_sync();
    backward(one);
  };
  const auto pass_that_throws = [](ShardedNet& one) {
    const at::Tensor x = at::ones({2, 7}).requires_grad_();
    x.register_hook([](const at::Tensor&) { throw std::domain_error("broken"); });
    EXPECT_THROW((*one.net)(x).sum().backward(), std::exception);
  };
  std::vector<Misuse> misuses;
  for (const auto& [cure, pass] : {std::pair<const char*, std::function<void(ShardedNet&)>>(
                                       "outside of no_sync()", pass_in_no_sync),
                                   {"call zero_grad()", pass_that_throws}}) {
    const auto add = [&, pass = pass](const char* says, const auto& call) {
      misuses.push_back({says, [=](ShardedNet& one) {
                           backward(one);
                           pass(one);
                           call(one);
                         }});
    };
    add(cure, [](ShardedNet& one) { one.optimizer->step(); });
    add(cure, [](ShardedNet& one) { one.optimizer->zero_grad(false); });
    add(cure, [](ShardedNet& one) { one.model.clip_grad_norm_(1); });
    add("model.parameters()", [](ShardedNet& one) { one.net->zero_grad(false); });
  }
  expect_refused(world_size(), misuses);
}

// Rank 0 owns all seven elements of the scale, so the other ranks read no value of the gradient.
MULTI_RANK_TEST(Refusals, of_an_incomplete_gradient_come_on_ranks_that_own_none_of_it_too) {
  run_ranks(world_size(), [](TestRank& rank) {
    ShardedNet one(rank);
    for (const auto& block : one.net->blocks)
      for (at::Tensor& parameter : block->parameters())
        parameter.set_requires_grad(false);
    {
      const NoSync no_sync = one.model.no_sync();
      backward(one);
    }
    EXPECT_CONTAINS(error_of([&] { one.model.clip_grad_norm_(1); }),
                    "the gradients of unit root have not been reduced");
  });
}

MULTI_RANK_TEST(Refusals, of_changes_at_a_wrong_time_say_what_was_changed) {
  const auto late = [](const std::function<void(ShardedNet&)>& call) {
    return Misuse{"parameter late.linear.weight was registered after",
                  [=](ShardedNet& one) {
                    one.net->register_module("late", std::make_shared<LayerBlock>());
                    call(one);
                  },
                  false};
  };
  const auto replaced = [](const std::function<void(ShardedNet&)>& call) {
    return Misuse{"b0.linear.weight of unit b0 was replaced",
                  [=](ShardedNet& one) {
                    weight_of(one).set_data(at::ones({7, 7}));
                    call(one);
                  },
                  false};
  };
  const auto save = [](ShardedNet& one) { one.model.state_dict(); };
  expect_refused(world_size(),
                 {late([](ShardedNet& one) { one.model.parameters(); }),
                  late(backward),
                  late(save),
                  replaced(backward),
                  replaced(save),
                  {"was changed since its forward",
                   [](ShardedNet& one) {
                     backward(one);
                     const at::Tensor loss = loss_of(*one.net, one.rank);
                     adamw(one.model.parameters())->step();  // changes elements of every rank
                     loss.backward();
                   }},
                  {"parameter scale of unit root was written to while it was gathered",
                   [](ShardedNet& one) {
                     loss_of(*one.net, one.rank);  // the root stays unsharded
                     {
                       const at::NoGradGuard no_grad;
                       one.net->scale.mul_(2);
                     }
                     backward(one);
                   }},
                  {"called inside summon_full_params()", [](ShardedNet& one) {
                     one.model.summon_full_params([&] { loss_of(*one.net, one.rank); });
                   }}});
}

// Ways in which users change parameters between steps.
using Parameters = std::vector<at::Tensor>;
const std::vector<void (*)(const Parameters&)> kChanges{
    [](const Parameters& parameters) {
      for (const at::Tensor& parameter : parameters)
        parameter.data().mul_(0.5);
    },
    [](const Parameters& parameters) {
      for (const at::Tensor& parameter : parameters)
        parameter.detach().mul_(0.5);
    },
    [](const Parameters& parameters) {
      for (const at::Tensor& parameter : parameters)
        at::Tensor(parameter).set_data(parameter.detach() * 0.5);
    },
    [](const Parameters& parameters) {
      torch::nn::utils::vector_to_parameters(
          torch::nn::utils::parameters_to_vector(parameters) * 0.5, parameters);
    }};

MULTI_RANK_TEST(Refusals, of_a_change_where_there_is_another_value_of_the_parameter) {
  std::vector<Misuse> misuses;
  for (const auto& change : kChanges) {
    const auto in_a_scope = [=](ShardedNet& one) {
      one.model.summon_full_params([&] { change(one.model.parameters()); });
    };
    const auto before_backward = [=](ShardedNet& one) {
      const at::Tensor loss = loss_of(*one.net, one.rank);
      change(one.model.parameters());
      loss.backward();
    };
    misuses.push_back({"outside of it", in_a_scope, /*goes_on=*/false});
    misuses.push_back({"was changed since its forward", before_backward, /*goes_on=*/false});
  }
  expect_refused(world_size(), misuses, {.wrap = wrap_none()});
}

// With one rank this rank's part is the whole gradient: the norms are right, and LBFGS steps.
void expect_norms_and_lbfgs_of_one_rank() {
  run_ranks(1, [](TestRank& rank) {
    ShardedNet sharded(rank, momentum);
    for (const double type : {1.0, 2.0, std::numeric_limits<double>::infinity()}) {
      backward(sharded);
      const double norm = sharded.model.clip_grad_norm_(1e9, type);
      EXPECT_NEAR(torch::nn::utils::clip_grad_norm_(sharded.model.parameters(), 1e9, type), norm,
                  1e-5 * norm);
      EXPECT_GT(norm, 0);
    }
    sharded.model.zero_grad();
    const at::Tensor before = sharded.all_parameters();
    torch::optim::LBFGS lbfgs(sharded.model.parameters(), torch::optim::LBFGSOptions(0.1));
    lbfgs.step([&] {
      lbfgs.zero_grad();
      const at::Tensor loss = loss_of(*sharded.net, rank);
      loss.backward();
      return loss;
    });
    EXPECT_FALSE(sharded.all_parameters().equal(before)) << "which the step changed";
  });
}

MULTI_RANK_TEST(Refusals, of_norms_and_lbfgs_which_would_see_this_ranks_part_of_the_gradient) {
  if (world_size() == 1) return expect_norms_and_lbfgs_of_one_rank();
  const char* const says = "model.clip_grad_norm_()";
  const auto lbfgs = [](ShardedNet& one) {
    torch::optim::LBFGS optimizer(one.model.parameters());
    backward(one);
    optimizer.step([&] { return loss_of(*one.net, one.rank); });
  };
  std::vector<Misuse> misuses{{says, lbfgs}, {"LBFGS can't be used", lbfgs}};
  for (const double type : {1.0, 2.0, std::numeric_limits<double>::infinity()})
    misuses.push_back({says, [=](ShardedNet& one) {
                         backward(one);
                         torch::nn::utils::clip_grad_norm_(one.model.parameters(), 1.0, type);
                       }});
  expect_refused(world_size(), misuses);
}

// A weight, and a part of it registered too.
struct Overlapping : BlockNet {
  at::Tensor row = register_parameter("row", blocks[0]->linear->weight.detach()[1]);
};

// A unit that a container of LibTorch calls by forward(), which runs no hooks.
struct InSequential : Module {
  InSequential() {
    layers->push_back(std::make_shared<LayerBlock>());
    register_module("layers", layers);
  }
  at::Tensor forward(at::Tensor x) override { return layers->forward(x); }
  torch::nn::Sequential layers;
};

MULTI_RANK_TEST(Refusals, of_a_model_leave_it_as_it_was) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto expect = [&](Module& net, const char* says) {
      const auto shard = [&] { FullyShardedDataParallel model(net, rank.communicator()); };
      EXPECT_CONTAINS(error_of<std::invalid_argument>(shard), says);
    };
    torch::manual_seed(1);
    Overlapping overlapping;
    expect(overlapping, "parameter b0.linear.weight and parameter row share memory");
    overlapping(at::ones({2, 7}));
    InSequential contained;
    expect(contained,
           "layers.0 (fsdp::LayerBlock) lies in a torch::nn::Sequential, which calls forward() and "
           "so runs no hooks; use an fsdp::Sequential");
    contained(at::ones({2, 7}));
    // Then nothing is called past a hook.
    FullyShardedDataParallel model(contained, rank.communicator(), {.wrap = wrap_none()});
    loss_of(contained, rank).backward();
    const auto net = block_net();
    net->blocks[1]->to(at::kDouble);
    expect(*net, "b1.linear.weight");
    net->blocks[1]->to(at::kFloat);
    net->forward(at::ones({2, 7}));
    ShardedNet sharded(rank, adamw, net);
    expect(*net, "is sharded already");
    sharded.step();
  });
}

// A holder of LibTorch's: its call is forward().
struct TorchBlockImpl : LayerBlock {};
TORCH_MODULE(TorchBlock);
struct HoldingNet : Module {
  at::Tensor forward(at::Tensor x) override { return block(x); }
  TorchBlock block = register_module("block", TorchBlock());
};

// What writes to a weight in forward writes to what was gathered.
struct TableNet : Module {
  explicit TableNet(const torch::nn::EmbeddingOptions& options)
      : table(register_module("table", torch::nn::Embedding(options))) {}
  at::Tensor forward(at::Tensor ids) override { return table(ids); }
  torch::nn::Embedding table;
};

MULTI_RANK_TEST(Refusals, of_a_kind_of_model_come_with_its_first_step) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto expect = [&](const auto& net, const at::Tensor& x, const char* says) {
      FullyShardedDataParallel model(*net, rank.communicator());
      EXPECT_CONTAINS(error_of([&] { model(x).sum().backward(); }), says);
    };
    torch::manual_seed(1);
    expect(std::make_shared<HoldingNet>(), at::ones({2, 7}),
           "other causes are in docs/what_works.md");
    const auto tied = std::make_shared<RowOf<LayerBlock>>();
    tied->blocks[1]->linear->weight = tied->blocks[0]->linear->weight;
    expect(tied, at::ones({2, 7}), "b0.linear.weight and 1 more of unit b0 are sharded now");
    const auto table = [](const torch::nn::EmbeddingOptions& options) {
      return std::make_shared<TableNet>(options);
    };
    expect(table(torch::nn::EmbeddingOptions(5, 3).max_norm(0.1)), at::tensor({1, 2}),
           "parameter table.weight of unit root was written to while it was gathered");
    expect(table(torch::nn::EmbeddingOptions(5, 3).sparse(true)), at::tensor({1, 2}),
           "the gradient of parameter table.weight is sparse");
  });
}

MULTI_RANK_TEST(Refusals, are_a_warning_where_a_policy_chose_nothing) {
  run_ranks(world_size(), [](TestRank& rank) {
    WarningsOf warnings;
    torch::manual_seed(1);
    TableNet first(torch::nn::EmbeddingOptions(5, 3)), second(torch::nn::EmbeddingOptions(5, 3));
    FullyShardedDataParallel by_default(first, rank.communicator());
    const std::string said = std::exchange(warnings.texts, "");
    EXPECT_EQ(said.find("chose no module") != std::string::npos, rank.rank() == 0);
    FullyShardedDataParallel on_purpose(second, rank.communicator(), {.wrap = wrap_none()});
    EXPECT_EQ(warnings.texts, "");
  });
}

}  // namespace
}  // namespace fsdp
