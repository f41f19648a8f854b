#include <gtest/gtest.h>
#include <module_of.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <common/expect_text.h>
#include <common/hook_events.h>
#include <common/in_a_process.h>

namespace fsdp {
namespace {

using TwoTensors = std::pair<at::Tensor, at::Tensor>;

// Returns (f(w x), w y), with a record of when gradients arrive.
struct TwoWay : ModuleOf<TwoTensors(at::Tensor x, at::Tensor y)> {
  explicit TwoWay(Events& all) : events(all) {
    weight = register_parameter("weight", at::full({3, 3}, 0.5));
    weight.register_hook([&all](const at::Tensor&) { all.push_back("weight"); });
  }
  TwoTensors forward(at::Tensor x, at::Tensor y) override {
    events.push_back("forward");
    return {finish(at::linear(x, weight)), at::linear(y, weight)};
  }
  Events& events;
  at::Tensor weight;  // [3, 3]
  std::function<at::Tensor(at::Tensor)> finish{[](at::Tensor x) { return x; }};
};

// A module whose backward is noted too.
struct Noted {
  Noted() { note_backward(module, events); }
  Events events;
  TwoWay module{events};
};

// What comes after forward when the loss is made of the two outputs.
Events events_of(Noted& noted, const at::Tensor& loss) {
  noted.events.clear();
  loss.backward();
  return noted.events;
}

at::Tensor ones(bool requires_grad = true) {
  return at::ones({2, 3}).set_requires_grad(requires_grad);
}

TEST(ModuleOf, runs_its_forward_hooks_once_around_forward) {
  in_a_process([] {
    Events events;
    TwoWay module(events);
    module.register_forward_pre_hook([&](Module& self, const at::Tensor&) {
      EXPECT_EQ(&self, &module);
      events.push_back("pre");
      return at::Tensor();
    });
    module.register_forward_hook([&](Module&, const at::Tensor&) {
      events.push_back("post");
      return at::Tensor();
    });
    const auto [x, y] = module(ones(), ones() * 2);
    EXPECT_EQ(events, (Events{"pre", "forward", "post"}));
    EXPECT_TRUE(at::equal(x, at::full({2, 3}, 1.5)));
    EXPECT_TRUE(at::equal(y, at::full({2, 3}, 3.0)));
  });
}

// Returns its arguments.
struct Same : ModuleOf<std::vector<at::Tensor>(std::vector<at::Tensor> tensors, int)> {
  std::vector<at::Tensor> forward(std::vector<at::Tensor> tensors, int) override { return tensors; }
};

// Which of the tensors a forward pre-hook gets: 0, 1, ..., or -1 for an undefined one.
int shown_among(const std::vector<at::Tensor>& tensors) {
  Same module;
  int shown = -1;
  module.register_forward_pre_hook([&](Module&, const at::Tensor& given) {
    for (size_t i = 0; i < tensors.size() && given.defined(); ++i)
      if (tensors[i].is_same(given)) shown = static_cast<int>(i);
    return at::Tensor();
  });
  module(tensors, 5);
  return shown;
}

TEST(ModuleOf, shows_its_hooks_the_first_tensor_that_requires_a_gradient_or_is_defined) {
  in_a_process([] {
    const auto ids = at::tensor({1, 2});
    EXPECT_EQ(shown_among({ids, ones(false), ones()}), 2);
    EXPECT_EQ(shown_among({at::Tensor(), ids, ones(false)}), 1);
    EXPECT_EQ(shown_among({at::Tensor()}), -1);
    EXPECT_EQ(shown_among({}), -1);
  });
}

TEST(ModuleOf, puts_the_tensor_of_a_hook_in_the_place_of_the_one_it_was_given) {
  in_a_process([] {
    Same module;
    module.register_forward_pre_hook([](Module&, const at::Tensor& x) { return x + 1; });
    module.register_forward_pre_hook([](Module&, const at::Tensor& x) { return x * 2; });
    module.register_forward_hook([](Module&, const at::Tensor& x) { return x - 10; });
    const auto x = ones();
    const auto out = module({at::tensor({7}), x, ones(false), x}, 5);
    EXPECT_EQ(out[0].item<int>(), 7);
    EXPECT_TRUE(at::equal(out[1], at::full({2, 3}, -6.0)));
    EXPECT_TRUE(at::equal(out[2], ones()));
    EXPECT_TRUE(out[3].is_same(out[1]));
  });
}

TEST(ModuleOf, runs_its_backward_hooks_once_around_the_gradients_whatever_the_loss_takes) {
  using Loss = std::function<at::Tensor(TwoTensors out)>;
  const std::vector<Loss> losses{
      [](TwoTensors out) { return (out.first * out.second).sum(); },
      [](TwoTensors out) { return out.first.sum(); },
      [](TwoTensors out) { return out.second.sum(); },
      [](TwoTensors out) { return (out.second.tanh() + out.first).sum(); },
      [](TwoTensors out) { return (out.first.add_(1) * out.second.mul_(2)).sum(); }};
  in_a_process([&] {
    for (size_t i = 0; i < losses.size(); ++i) {
      Noted noted;
      EXPECT_EQ(events_of(noted, losses[i](noted.module(ones(), ones()))),
                (Events{"opens", "weight", "closes"}))
          << "loss " << i;
    }
  });
}

TEST(ModuleOf, backward_hooks_run_once_per_call_and_pass_over_a_graph_that_is_kept) {
  in_a_process([] {
    Noted noted;
    const auto [x, y] = noted.module(ones(), ones());
    const auto [u, v] = noted.module(x, y);
    noted.module(ones(), ones());
    const auto loss = (u * v).sum();
    for (const bool kept : {true, false}) {
      noted.events.clear();
      loss.backward({}, /*retain_graph=*/kept);
      EXPECT_EQ(std::count(noted.events.begin(), noted.events.end(), "opens"), 2);
      EXPECT_EQ(std::count(noted.events.begin(), noted.events.end(), "closes"), 2);
      EXPECT_EQ(noted.events.front(), "opens");
    }
  });
}

TEST(ModuleOf, the_full_backward_hook_waits_for_the_gradients_of_all_inputs) {
  in_a_process([] {
    Noted noted;
    const auto input = [&](const std::string& event) {
      auto tensor = ones() * 1;
      tensor.register_hook([&noted, event](const at::Tensor&) { noted.events.push_back(event); });
      return tensor;
    };
    const auto x = input("x"), y = input("y");
    const auto [u, v] = noted.module(x, y);
    EXPECT_EQ(events_of(noted, (u.tanh() + v).sum()),
              (Events{"opens", "weight", "closes", "y", "x"}));
  });
}

TEST(ModuleOf, the_full_backward_hook_runs_if_an_input_requires_a_gradient) {
  in_a_process([] {
    for (const auto& [first, second, closes] : std::vector<std::array<bool, 3>>{
             {true, false, true}, {false, true, true}, {false, false, false}}) {
      Noted noted;
      const auto [u, v] = noted.module(ones(first), ones(second));
      const Events events = events_of(noted, (u * v).sum());
      EXPECT_EQ(events,
                closes ? (Events{"opens", "weight", "closes"}) : (Events{"opens", "weight"}));
    }
  });
}

TEST(ModuleOf, runs_no_backward_hook_without_grad_mode) {
  in_a_process([] {
    Noted noted;
    const at::NoGradGuard no_grad;
    EXPECT_FALSE(noted.module(ones(), ones()).first.requires_grad());
    EXPECT_EQ(noted.events, Events{"forward"});
  });
}

// Sums in fp32 depend on their order here: 1e8 + 1 is 1e8.
TEST(ModuleOf, hooks_do_not_change_the_gradient_of_a_tensor_that_is_given_several_times) {
  in_a_process([] {
    struct Three : ModuleOf<at::Tensor(at::Tensor, at::Tensor, const at::Tensor&)> {
      at::Tensor forward(at::Tensor a, at::Tensor b, const at::Tensor& c) override {
        const auto large = b * 1e8;
        const auto one = c * 1;
        return large + one + a * -1e8;
      }
    };
    const auto gradient = [](bool hooked) {
      Three module;
      Events events;
      if (hooked) note_backward(module, events);
      const auto x = ones();
      module(x, x, x).sum().backward();
      EXPECT_EQ(events.size(), hooked ? 2U : 0U);
      return x.grad();
    };
    EXPECT_TRUE(at::equal(gradient(true), gradient(false))) << gradient(true) << gradient(false);
  });
}

TEST(ModuleOf, an_exception_of_forward_runs_the_hooks_that_asked_for_it) {
  in_a_process([] {
    Events events;
    TwoWay module(events);
    module.finish = [](at::Tensor) -> at::Tensor { throw std::domain_error("broken"); };
    module.register_forward_hook([&](Module&, const at::Tensor& y) {
      events.push_back("plain");
      return y;
    });
    module.register_forward_hook(
        [&](Module&, const at::Tensor& y) {
          events.push_back(y.defined() ? "defined" : "undefined");
          return y;
        },
        /*always_call=*/true);
    EXPECT_THROW(module(ones(), ones()), std::domain_error);
    EXPECT_EQ(events, (Events{"forward", "undefined"}));
  });
}

TEST(ModuleOf, one_tensor_is_refused_by_name) {
  in_a_process([] {
    Noted noted;
    Module& base = noted.module;
    EXPECT_EQ(error_of<std::logic_error>([&] { base(ones()); }),
              "fsdp::(anonymous namespace)::TwoWay is called with one tensor, but has another "
              "shape; call it by its own type, with all its inputs");
    EXPECT_EQ(noted.events, Events{});
  });
}

// What a ModuleOf may take and return.
struct Cells {
  at::Tensor hidden;
  std::optional<at::Tensor> cell;
  int steps{};
  auto tensors() { return std::tie(hidden, cell); }
};

at::Tensor ones_row() {
  return at::ones({1, 3}).set_requires_grad(true);
}

TEST(ModuleValues, of_the_caller_stay_as_they_are) {
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

TEST(ModuleValues, without_tensors_pass_as_they_are) {
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

// Makes outputs of a tensor that was computed with its parameter.
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

TEST(ModuleValues, as_outputs_run_the_backward_hooks_once_whatever_they_share) {
  struct Case {
    const char* name;
    Outputs::Function finish;
    bool changed_in_place{};  // by the caller
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

TEST(ModuleValues, a_parameter_among_outputs_does_not_accumulate_hooks_over_calls) {
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

TEST(ModuleValues, inputs_that_do_not_count_do_not_delay_the_full_backward_hook) {
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
