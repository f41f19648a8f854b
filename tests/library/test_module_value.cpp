#include <gtest/gtest.h>
#include <module_of.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <common/hook_events.h>
#include <common/in_a_process.h>

namespace fsdp {
namespace {

// A class with tensors that a ModuleOf can have as argument and as result.
struct Cells {
  at::Tensor hidden;
  std::optional<at::Tensor> cell;
  int steps{};
  auto tensors() { return std::tie(hidden, cell); }
};

at::Tensor ones_row() {
  return at::ones({1, 3}).set_requires_grad(true);
}

TEST(ModuleValue, forward_pre_hooks_do_not_change_the_callers_arguments) {
  in_a_process([] {
    struct Steps : ModuleOf<Cells(Cells state, const std::vector<at::Tensor>& inputs)> {
      Cells forward(Cells state, const std::vector<at::Tensor>& inputs) override {
        return {state.hidden + inputs[0], state.cell, state.steps + 1};
      }
    } module;
    module.register_forward_pre_hook([](Module&, const at::Tensor& x) { return x + 1; });
    const std::vector<at::Tensor> inputs{ones_row()};
    const Cells state{ones_row(), std::nullopt};
    const auto before = std::pair(inputs[0], state.hidden);
    module(state, inputs);
    EXPECT_TRUE(inputs[0].is_same(before.first));
    EXPECT_TRUE(state.hidden.is_same(before.second));
  });
}

TEST(ModuleValue, references_and_arguments_without_tensors_reach_forward_unchanged) {
  in_a_process([] {
    struct Other {
      int value;
    };
    struct Takes : ModuleOf<at::Tensor(at::Tensor x, const Other& same, Other& changed,
                                       std::unique_ptr<int> owned, Cells& state)> {
      at::Tensor forward(at::Tensor x, const Other& same, Other& changed,
                         std::unique_ptr<int> owned, Cells& state) override {
        address = &same;
        changed.value += *owned;
        hidden = state.hidden;
        state.steps = 4;
        return x;
      }
      const Other* address{};
      at::Tensor hidden;
    } module;
    Events events;
    note_backward(module, events);
    const Other same{1};
    Other changed{2};
    Cells state{ones_row(), std::nullopt};
    module(ones_row(), same, changed, std::make_unique<int>(3), state);
    EXPECT_EQ(module.address, &same);
    EXPECT_EQ(changed.value, 5);
    EXPECT_TRUE(module.hidden.is_same(state.hidden));
    EXPECT_EQ(state.steps, 4);
  });
}

using Named = std::map<std::string, at::Tensor>;

// A module that computes y from its input x and its weight, and returns what `finish` makes from x
// and y.
struct Outputs : ModuleOf<Named(const at::Tensor& x)> {
  using Function = std::function<Named(const at::Tensor& x, const at::Tensor& y)>;
  Outputs(Events& events, Function function) : finish(std::move(function)) {
    weight = register_parameter("weight", at::full({3, 3}, 0.5));
    weight.register_hook([&events](const at::Tensor&) { events.push_back("weight"); });
  }
  Named forward(const at::Tensor& x) override { return finish(x, at::linear(x, weight)); }
  Function finish;
  at::Tensor weight;  // [3, 3]
};

TEST(ModuleValue, backward_hooks_run_once_whatever_memory_the_outputs_share) {
  struct Case {
    const char* name;
    Outputs::Function finish;
    bool changed_in_place{};  // whether the caller changes the outputs in place
  };
  const auto two = [](const at::Tensor& a, const at::Tensor& b) {
    return Named{{"a", a}, {"b", b}};
  };
  const std::vector<Case> cases{
      {"one out of another",
       [&](const at::Tensor&, const at::Tensor& y) { return two(y, y.tanh()); }},
      {"the same twice", [&](const at::Tensor&, const at::Tensor& y) { return two(y, y); }},
      {"views of one", [&](const at::Tensor&, const at::Tensor& y) { return two(y[0], y[1]); },
       true},
      {"a view and its base", [&](const at::Tensor&, const at::Tensor& y) { return two(y, y[1]); },
       true},
      {"a view of the input too",
       [&](const at::Tensor& x, const at::Tensor& y) { return two(x[0], y); }},
      {"a leaf, an undefined one and those without gradient too",
       [](const at::Tensor&, const at::Tensor& y) {
         const at::Tensor leaf = at::ones({3}).set_requires_grad(true);
         return Named{
             {"a", {}}, {"b", at::tensor({1, 2})}, {"c", y.detach()}, {"l", leaf}, {"y", y}};
       }}};
  in_a_process([&] {
    for (const auto& [name, finish, changed_in_place] : cases) {
      Events events;
      Outputs module(events, finish);
      note_backward(module, events);
      auto out = module(at::ones({2, 3}).set_requires_grad(true));
      auto loss = at::zeros({});
      for (auto& [key, tensor] : out)
        if (changed_in_place) tensor += 1;
      for (const auto& [key, tensor] : out)
        if (tensor.defined() && tensor.requires_grad()) loss = loss + (tensor * tensor).sum();
      events.clear();
      loss.backward();
      EXPECT_EQ(events, (Events{"opens", "weight", "closes"})) << name;
    }
  });
}

TEST(ModuleValue, if_forward_returns_a_parameter_its_backward_hook_runs_once_per_call) {
  in_a_process([] {
    struct Returned : ModuleOf<std::pair<at::Tensor, at::Tensor>(at::Tensor x, int factor)> {
      Returned() { weight = register_parameter("weight", at::ones({3})); }
      std::pair<at::Tensor, at::Tensor> forward(at::Tensor x, int factor) override {
        return {weight, x * factor};
      }
      at::Tensor weight;  // [3]
    } module;
    Events events;
    module.register_full_backward_pre_hook(note(events, "opens"));
    for (int call = 0; call < 3; ++call)
      module(at::ones({3}), 2).first.sum().backward();
    EXPECT_EQ(events, (Events{"opens", "opens", "opens"}));
  });
}

TEST(ModuleValue, the_full_backward_hook_runs_although_some_inputs_get_no_gradient) {
  in_a_process([] {
    struct Select : ModuleOf<at::Tensor(std::vector<at::Tensor> from, size_t index)> {
      at::Tensor forward(std::vector<at::Tensor> from, size_t index) override {
        return from.at(index) * 2;
      }
    } module;
    Events events;
    note_backward(module, events);
    const auto unused = ones_row();
    module({unused, at::tensor({1}), at::Tensor(), ones_row()}, 3).sum().backward();
    EXPECT_EQ(events, (Events{"opens", "closes"}));
    EXPECT_FALSE(unused.grad().defined());
  });
}

}  // namespace
}  // namespace fsdp
