#include <gtest/gtest.h>
#include <module_of.h>

#include <algorithm>
#include <array>
#include <functional>
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

// A module with two inputs and two outputs: it returns (finish(x weight^T), y weight^T). It appends
// "forward" to `events` when forward() runs, and "weight" when the gradient of its weight is
// computed.
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

// A TwoWay module that also records its backward hooks in `events`.
struct Noted {
  Noted() { note_backward(module, events); }
  Events events;
  TwoWay module{events};
};

// Runs the backward pass of `loss`, and returns the events that it appended.
Events events_of(Noted& noted, const at::Tensor& loss) {
  noted.events.clear();
  loss.backward();
  return noted.events;
}

at::Tensor ones(bool requires_grad = true) {
  return at::ones({2, 3}).set_requires_grad(requires_grad);
}

TEST(ModuleOf, forward_hooks_of_a_module_run_once_before_and_after_forward) {
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

// A module whose forward() returns the tensors that it gets.
struct Same : ModuleOf<std::vector<at::Tensor>(std::vector<at::Tensor> tensors, int)> {
  std::vector<at::Tensor> forward(std::vector<at::Tensor> tensors, int) override { return tensors; }
};

// Calls a module with `tensors`. Returns the index of the tensor that the forward pre-hook of the
// module gets; -1 if the hook gets an undefined tensor.
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

TEST(ModuleOf, hooks_get_the_first_argument_that_requires_grad_or_else_the_first_tensor) {
  in_a_process([] {
    const auto ids = at::tensor({1, 2});
    EXPECT_EQ(shown_among({ids, ones(false), ones()}), 2);
    EXPECT_EQ(shown_among({at::Tensor(), ids, ones(false)}), 1);
    EXPECT_EQ(shown_among({at::Tensor()}), -1);
    EXPECT_EQ(shown_among({}), -1);
  });
}

TEST(ModuleOf, the_tensor_that_a_forward_hook_returns_replaces_the_one_it_was_given) {
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

TEST(ModuleOf, backward_hooks_run_once_whichever_outputs_of_the_module_the_loss_uses) {
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

TEST(ModuleOf, backward_hooks_run_once_per_call_and_backward_pass_over_a_retained_graph) {
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

TEST(ModuleOf, no_backward_hook_runs_without_grad_mode) {
  in_a_process([] {
    Noted noted;
    const at::NoGradGuard no_grad;
    EXPECT_FALSE(noted.module(ones(), ones()).first.requires_grad());
    EXPECT_EQ(noted.events, Events{"forward"});
  });
}

// In fp32 the gradient depends on the order of the sum, because 1e8 + 1 is rounded to 1e8.
TEST(ModuleOf, hooks_do_not_change_the_gradient_of_a_tensor_given_as_several_arguments) {
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

TEST(ModuleOf, forward_hooks_with_always_call_run_even_if_forward_throws) {
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

TEST(ModuleOf, calling_a_module_of_several_inputs_with_one_tensor_throws_and_names_the_module) {
  in_a_process([] {
    Noted noted;
    Module& base = noted.module;
    EXPECT_EQ(error_of<std::logic_error>([&] { base(ones()); }),
              "fsdp::(anonymous namespace)::TwoWay is called with one tensor, but has another "
              "shape; call it by its own type, with all its inputs");
    EXPECT_EQ(noted.events, Events{});
  });
}

}  // namespace
}  // namespace fsdp
