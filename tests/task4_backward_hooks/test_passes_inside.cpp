#include "inner_passes.h"
#include "sharded_model.h"

// Tests of backward passes inside a backward pass.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(T4_4_passes_inside);

// Returns a loss for which `body` replaces the calls of the model's blocks. `body` gets the
// embedded tokens.
Loss loss_of(std::function<at::Tensor(ToyModel& model, at::Tensor x)> body) {
  return [body = std::move(body)](ToyModel& model, int rank) {
    model.set_forward([&model, body](Module&, const at::Tensor& tokens) {
      return at::mv(body(model, at::embedding(model.embedding, tokens)), model.head);
    });
    return plain_loss(model, rank);
  };
}

const Loss kBlocksByHand = loss_of([](ToyModel& model, at::Tensor x) {
  for (const auto& block : model.blocks)
    x = by_hand(x, [block](const at::Tensor& input) { return (*block)(input); });
  return x;
});

// The loss uses blocks1 three times, twice checkpointed by hand and once plainly. So gradients of
// blocks1 arrive in three backward passes: two inner ones and the outer one.
const Loss kOneBlockByHandAndPlain = loss_of([](ToyModel& model, at::Tensor x) {
  const auto block = model.blocks[1];
  const auto call = [block](const at::Tensor& input) { return (*block)(input); };
  x = (*model.blocks[0])(x);
  x = by_hand(call(by_hand(x, call)), call);
  return (*model.blocks[2])(x);
});

const Loss kCheckpointInCheckpoint = loss_of([](ToyModel& model, const at::Tensor& x) {
  return by_hand(x, [&model](at::Tensor inside) {
    for (const auto& block : model.blocks)
      inside = by_hand(inside, [block](const at::Tensor& input) { return (*block)(input); });
    return inside;
  });
});

// The outer backward pass itself runs the backward of no module. The backward of every module runs
// in an inner pass.
const Loss kWholeModelByHand = [](ToyModel& model, int rank) {
  const at::Tensor seed = at::zeros({}).requires_grad_();
  at::Tensor sum = at::zeros({});
  for (const int part : {rank, rank + 5})
    sum = sum + by_hand(seed, [&model, part](const at::Tensor& zero) {
            return model(toy_tokens(part)).square().sum() + zero;
          });
  return sum;
};

const Loss kImplicitLayer = loss_of([](ToyModel& model, at::Tensor x) {
  x = (*model.blocks[0])(x);
  x = implicit_layer(*model.blocks[1], x);
  return (*model.blocks[2])(x);
});

// A loss in whose backward pass a hook runs autograd::grad() through block 1, just before the outer
// pass runs the backward of block 1.
const Loss kGradientOfTheSameCall = loss_of([](ToyModel& model, at::Tensor x) {
  x = (*model.blocks[0])(x);
  const at::Tensor y = (*model.blocks[1])(x);
  const at::Tensor z = y * 2;
  z.register_hook([x, y](const at::Tensor& gradient) {
    const auto found = torch::autograd::grad({y}, {x}, {gradient}, /*retain_graph=*/true);
    return gradient + found[0].mean();
  });
  return (*model.blocks[2])(z);
});

// A loss in whose backward pass a hook runs backward() of a second loss, through blocks 0 and 1,
// which the outer pass has not reached yet.
const Loss kSecondLossInAHook = loss_of([](ToyModel& model, at::Tensor x) {
  x = (*model.blocks[1])((*model.blocks[0])(x));
  const at::Tensor second = x.square().mean();
  const at::Tensor y = (*model.blocks[2])(x);
  y.register_hook([second](const at::Tensor&) { second.backward({}, /*retain_graph=*/true); });
  return y;
});

// A hook calls the blocks in forward. These calls reshard units that the backward pass still needs.
const Loss kForwardInAHook = loss_of([](ToyModel& model, at::Tensor x) {
  for (const auto& block : model.blocks) {
    const at::Tensor before = x;
    x = (*block)(x);
    x.register_hook([block, before](const at::Tensor& gradient) {
      const at::NoGradGuard no_grad;
      return gradient * (*block)(before).square().mean();
    });
  }
  return x;
});

void expect_right(int world_size, const Loss& loss) {
  const RankRun run = run_ranks(world_size, [&](TestRank& rank) {
    Sharded sharded(rank);
    int ends = 0;
    sharded.hooks->on_end([&] { ++ends; });
    for (int step = 0; step < 2; ++step) {
      sharded.drop_gradients();
      const at::Tensor value = loss(*sharded.model, rank.rank());
      take_calls(*rank.communicator());
      value.backward();
      std::map<std::string, int> reductions_of;
      for (const auto& unit : sharded.units)
        reductions_of[unit->unit()] = 0;
      std::istringstream all(reductions(take_calls(*rank.communicator())));
      for (std::string unit; std::getline(all >> std::ws, unit, ';');)
        ++reductions_of[unit];
      rank.observe("reductions of each unit in step " + std::to_string(step), reductions_of);
      rank.observe("calls of on_end() by step " + std::to_string(step), ends);
      rank.observe("units gathered after step " + std::to_string(step), sharded.gathered());
    }
    sharded.observe_gradients(rank);
  });
  const std::map<std::string, int> once{
      {"root", 1}, {"blocks0", 1}, {"blocks1", 1}, {"blocks2", 1}};
  for (int step = 0; step < 2; ++step) {
    expect_on_all_ranks(run, "reductions of each unit in step " + std::to_string(step), once);
    expect_on_all_ranks(run, "calls of on_end() by step " + std::to_string(step), step + 1);
    expect_on_all_ranks(run, "units gathered after step " + std::to_string(step), "");
  }
  expect_gradients_of_one_process(run, loss);
}

MULTI_RANK_TEST(T4_4_passes_inside, blocks_checkpointed_by_hand_have_the_gradients_of_one_process) {
  expect_right(world_size(), kBlocksByHand);
}

MULTI_RANK_TEST(T4_4_passes_inside,
                gradients_of_two_inner_passes_and_the_outer_one_equal_those_of_one_process) {
  expect_right(world_size(), kOneBlockByHandAndPlain);
}

MULTI_RANK_TEST(T4_4_passes_inside, nested_checkpoints_by_hand_give_the_gradients_of_one_process) {
  expect_right(world_size(), kCheckpointInCheckpoint);
}

MULTI_RANK_TEST(T4_4_passes_inside, a_whole_model_checkpoint_gives_the_gradients_of_one_process) {
  expect_right(world_size(), kWholeModelByHand);
}

MULTI_RANK_TEST(T4_4_passes_inside, an_implicit_layer_has_the_gradients_of_one_process) {
  expect_right(world_size(), kImplicitLayer);
}

MULTI_RANK_TEST(T4_4_passes_inside,
                a_hook_may_run_autograd_grad_over_the_call_whose_backward_is_next) {
  expect_right(world_size(), kGradientOfTheSameCall);
}

MULTI_RANK_TEST(T4_4_passes_inside, a_hook_in_a_backward_pass_may_run_backward_of_a_second_loss) {
  expect_right(world_size(), kSecondLossInAHook);
}

MULTI_RANK_TEST(T4_4_passes_inside, a_forward_in_a_backward_hook_does_not_change_the_gradients) {
  expect_right(world_size(), kForwardInAHook);
}

// The gradients that the inner pass had added before it threw are kept, as they are in one process.
MULTI_RANK_TEST(T4_4_passes_inside,
                the_outer_pass_continues_if_a_hook_catches_what_an_inner_one_throws) {
  const Loss loss = loss_of([](ToyModel& model, at::Tensor x) {
    x = (*model.blocks[0])(x);
    x.register_hook([times = std::make_shared<int>(0)](const at::Tensor&) {
      if (++*times == 1) throw std::domain_error("in the inner pass");
    });
    x = (*model.blocks[1])(x);
    const at::Tensor second = x.square().mean();
    x = (*model.blocks[2])(x);
    x.register_hook([second](const at::Tensor&) {
      try {
        second.backward({}, /*retain_graph=*/true);
      } catch (const std::domain_error&) {
      }
    });
    return x;
  });
  expect_right(world_size(), loss);
}

MULTI_RANK_TEST(T4_4_passes_inside, a_backward_of_another_model_in_a_hook_ends_in_this_hook) {
  const auto gradient_of = [](Module& other, const at::Tensor& tokens) {
    const at::Tensor out = other(tokens).square().sum();
    out.backward();
    return out.detach();
  };
  const auto loss = [&](ToyModel& one, ToyModel& two, int rank) {
    const at::Tensor out = one(toy_tokens(rank));
    out.register_hook([&, rank](const at::Tensor& gradient) {
      const at::AutoGradMode with_gradients(true);
      return gradient * gradient_of(two, toy_tokens(rank + 1));
    });
    return out.square().sum();
  };
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    Sharded one(rank), two(rank, other_toy(3));
    std::string ends;
    one.hooks->on_end([&] { ends += "outer "; });
    two.hooks->on_end([&] { ends += "inner "; });
    loss(*one.model, *two.model, rank.rank()).backward();
    rank.observe("ends of passes", ends);
    rank.observe("units still gathered", one.gathered() + two.gathered());
    one.observe_gradients(rank, "first model's ");
    two.observe_gradients(rank, "second model's ");
  });
  expect_on_all_ranks(run, "ends of passes", "inner outer ");
  expect_on_all_ranks(run, "units still gathered", "");
  const int w = world_size();
  const RankRun expected = run_oracle([&](TestRank& rank) {
    const auto one = toy_model(3), two = other_toy(3);
    const auto value = [&](int r) {
      for (auto& parameter : two->parameters())
        parameter.mutable_grad().reset();
      return loss(*one, *two, r);
    };
    observe_means(rank, *one, mean_gradients(*one, w, value), w, "first model's ");
    const auto of_two = [&](int r) { return (*two)(toy_tokens(r + 1)).square().sum(); };
    for (auto& parameter : two->parameters())
      parameter.mutable_grad().reset();
    observe_means(rank, *two, mean_gradients(*two, w, of_two), w, "second model's ");
  });
  expect_gradients(run, expected, "first model's ");
  expect_gradients(run, expected, "second model's ");
}

}  // namespace
}  // namespace fsdp
