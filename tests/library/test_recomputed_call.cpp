#include <recomputed_call.h>

#include <common/expect_text.h>
#include <common/in_a_process.h>
#include <library/context_block.h>

#include <utility>

// Tests checkpoint_activations() of modules with inputs and outputs of any types, in one process.
namespace fsdp {
namespace {

TEST(RecomputedCall, a_checkpointed_call_keeps_no_intermediate_tensor_of_its_forward) {
  in_a_process([] {
    const auto block = std::make_shared<ContextBlock>();
    ContextOutput made = (*block)(context_rows(), {context_rows()}, "tanh");
    EXPECT_FALSE(block->on_the_way->expired());
    checkpoint_activations(*block);
    made = (*block)(context_rows(), {context_rows()}, "tanh");
    EXPECT_TRUE(block->on_the_way->expired());
    made.y.sum().backward();
    EXPECT_TRUE(block->on_the_way->expired());
  });
}

TEST(RecomputedCall, a_checkpointed_call_frees_its_inputs_when_backward_has_used_them) {
  in_a_process([] {
    const auto block = std::make_shared<ContextBlock>();
    checkpoint_activations(*block);
    at::Tensor input = context_rows().clone();
    const WeakTensor held(input.getIntrusivePtr());
    const ContextOutput made = (*block)(std::move(input), {context_rows()}, "tanh");
    EXPECT_FALSE(held.expired());
    made.y.sum().backward();
    EXPECT_TRUE(held.expired());
  });
}

TEST(RecomputedCall, activation_checkpointing_does_not_change_gradients) {
  in_a_process([] {
    std::vector<std::vector<at::Tensor>> gradients;
    for (const bool checkpointed : {false, true}) {
      torch::manual_seed(1);
      const auto block = std::make_shared<ContextBlock>();
      if (checkpointed) checkpoint_activations(*block);
      const at::Tensor x = context_rows().requires_grad_(),
                       context = (2 * context_rows()).requires_grad_();
      const ContextOutput made = (*block)(x, {context, context_rows(), context}, "tanh");
      EXPECT_FALSE(made.largest.requires_grad());
      const at::Tensor loss = made.y.square().sum() + 3 * *made.aside;
      loss.backward({}, /*retain_graph=*/true);
      loss.backward();  // each of the two backward passes runs forward() again
      EXPECT_EQ(block->runs, checkpointed ? 3 : 1);
      gradients.push_back({x.grad(), context.grad(), block->linear->weight.grad()});
    }
    for (size_t i = 0; i < gradients[0].size(); ++i)
      EXPECT_TRUE(at::equal(gradients[0][i], gradients[1][i])) << i;
  });
}

// A module that returns the list {x w, x w, x, y + 1}: one tensor twice, its own input, and an
// undefined tensor if y is absent.
struct RepeatsOutput
    : ModuleOf<std::vector<at::Tensor>(const at::Tensor& x, const std::optional<at::Tensor>& y)> {
  std::vector<at::Tensor> forward(const at::Tensor& x,
                                  const std::optional<at::Tensor>& y) override {
    const at::Tensor made = x * weight;
    return {made, made, x, y ? *y + 1 : at::Tensor()};
  }
  at::Tensor weight = register_parameter("weight", at::full({}, 3.0));
};

TEST(RecomputedCall, a_checkpointed_forward_may_return_an_input_a_repeated_or_an_undefined_tensor) {
  in_a_process([] {
    for (const bool given : {false, true}) {
      const auto module = std::make_shared<RepeatsOutput>();
      checkpoint_activations(*module);
      const at::Tensor x = at::ones({2}).requires_grad_(), y = at::ones({2});
      const auto made = (*module)(x, given ? std::optional(y) : std::nullopt);
      EXPECT_EQ(made[3].defined(), given);
      (made[0] + 10 * made[1] + 100 * made[2]).sum().backward();
      EXPECT_TRUE(at::equal(x.grad(), at::full({2}, 133.0)));
      EXPECT_EQ(module->weight.grad().item<float>(), 22);
    }
  });
}

TEST(RecomputedCall, changing_an_input_of_a_checkpointed_call_in_place_throws_in_backward) {
  in_a_process([] {
    const auto block = std::make_shared<ContextBlock>();
    checkpoint_activations(*block);
    const at::Tensor context = context_rows();
    const ContextOutput made = (*block)(context_rows(), {context}, "tanh");
    context.add_(1);
    EXPECT_CONTAINS(error_of([&] { made.y.sum().backward(); }), "modified by an inplace operation");
  });
}

TEST(RecomputedCall, after_a_recomputation_that_throws_backward_and_the_next_call_work) {
  in_a_process([] {
    const auto block = std::make_shared<ContextBlock>();
    checkpoint_activations(*block);
    const ContextOutput made = (*block)(context_rows(), {}, "tanh");
    block->throws = true;
    EXPECT_CONTAINS(error_of([&] { made.y.sum().backward({}, /*retain_graph=*/true); }),
                    "no such row");
    block->throws = false;
    made.y.sum().backward();
    EXPECT_TRUE(block->linear->weight.grad().defined());
    EXPECT_TRUE((*block)(context_rows(), {}, "tanh").y.requires_grad());
    EXPECT_TRUE(block->on_the_way->expired());
  });
}

TEST(RecomputedCall, a_checkpointed_call_inside_another_one_runs_its_forward_only_twice) {
  in_a_process([] {
    const auto outer = std::make_shared<CallsContextBlock>();
    checkpoint_activations(*outer);
    checkpoint_activations(*outer->inside);
    (*outer)(context_rows()).y.sum().backward();
    EXPECT_EQ(outer->inside->runs, 2);
  });
}

struct SharedCache {
  std::shared_ptr<at::Tensor> keys = std::make_shared<at::Tensor>(at::ones({2}));
  auto tensors() { return std::tie(*keys); }
};

template <class Input>
struct TakesInput : ModuleOf<at::Tensor(const at::Tensor& x, Input input)> {
  at::Tensor forward(const at::Tensor& x, Input /*input*/) override { return x + 1; }
};

template <class Input>
std::string refusal_of_input() {
  TakesInput<Input> module;
  return error_of([&] { checkpoint_activations(module); });
}

TEST(RecomputedCall,
     checkpoint_activations_throws_if_an_input_may_change_or_cannot_be_copied_or_searched) {
  in_a_process([] {
    EXPECT_CONTAINS(refusal_of_input<std::vector<int>&>(), "input 2: it is taken by reference");
    EXPECT_CONTAINS(refusal_of_input<std::unique_ptr<int>>(), "input 2: it can't be copied");
    EXPECT_CONTAINS(refusal_of_input<std::shared_ptr<int>>(), "input 2: tensors could hide in it");
    TakesInput<std::string> text;
    checkpoint_activations(text);
    TakesInput<const std::vector<int>&> numbers;
    checkpoint_activations(numbers);
    CallsContextBlock outer;
    EXPECT_CONTAINS(error_of([&] { outer.set_forward({}); }), "by its own type");
  });
}

TEST(RecomputedCall, a_checkpointed_call_throws_if_a_copied_input_shares_its_tensors) {
  in_a_process([] {
    const auto module = std::make_shared<TakesInput<SharedCache>>();
    checkpoint_activations(*module);
    const SharedCache cache;
    EXPECT_CONTAINS(error_of([&] { (*module)(at::ones({2}).requires_grad_(), cache); }),
                    "copies of an input share its tensors");
    EXPECT_TRUE(cache.keys->defined());
  });
}

}  // namespace
}  // namespace fsdp
