#include <gtest/gtest.h>
#include <nn/module.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "hook_events.h"
#include "in_a_process.h"

namespace fsdp {
namespace {

// A module that computes y = finish(x w^T) with a function `finish` of the test. Appends "forward"
// to `events` when forward() runs, and "weight" when the gradient of w is computed.
class Probe : public Module {
 public:
  using Function = std::function<torch::Tensor(torch::Tensor)>;

  explicit Probe(
      Events& events, Function finish = [](torch::Tensor y) { return y; })
      : events_(events), finish_(std::move(finish)) {
    weight_ = register_parameter("weight", torch::full({3, 3}, 0.5));
    weight_.register_hook([&events](const torch::Tensor&) { events.push_back("weight"); });
  }

  torch::Tensor forward(torch::Tensor x) override {
    events_.push_back("forward");
    return finish_(torch::linear(x, weight_));
  }

  torch::Tensor weight() const { return weight_; }

 private:
  Events& events_;
  Function finish_;
  torch::Tensor weight_;  // [3, 3]
};

template <class Body>
void with_a_probe(Body body) {
  in_a_process([&] {
    Events events;
    Probe module(events);
    body(module, events);
  });
}

torch::Tensor input() {
  return torch::ones({2, 3}).set_requires_grad(true);
}

TEST_IN_A_PROCESS(
    Module,
    backward_hooks_run_once_before_and_after_gradients_even_if_the_output_is_a_changed_view) {
  const std::vector<Probe::Function> finishes{
      [](torch::Tensor y) { return y; }, [](torch::Tensor y) { return y.unsqueeze(0).squeeze(); },
      [](torch::Tensor y) { return y[0].narrow(0, 1, 2); },
      [](torch::Tensor y) {
        y[0].mul_(3);
        return y.view({6});
      }};
  for (const Probe::Function& finish : finishes) {
    for (const bool in_place : {false, true}) {
      Events events;
      Probe module(events, finish);
      note_backward(module, events);
      auto y = module(input());
      if (in_place) y += 1;
      auto loss = (y * y).sum();
      events.clear();
      loss.backward();
      EXPECT_EQ(events, (Events{"opens", "weight", "closes"}));
    }
  }
}

class Reshape : public Module {
 public:
  torch::Tensor forward(torch::Tensor x) override { return x.view({-1}); }
};

TEST_IN_A_PROCESS(
    Module,
    a_module_that_returns_a_view_of_its_input_runs_its_hook_only_if_the_view_is_in_the_loss) {
  Events events;
  Reshape module;
  module.register_full_backward_pre_hook(note(events, "opens"));
  auto x = input() * 2;
  auto y = module(x);
  x.sum().backward();
  EXPECT_EQ(events, Events{});
  y.sum().backward();
  EXPECT_EQ(events, Events{"opens"});
}

TEST_IN_A_PROCESS(Module, a_module_with_a_backward_hook_that_changes_its_input_in_place_throws) {
  class InPlace : public Module {
   public:
    torch::Tensor forward(torch::Tensor x) override { return x.mul_(2); }
  } module;
  module.register_full_backward_hook([](Module&) {});
  EXPECT_THROW(module(input() * 1), c10::Error);
}

TEST(Module, a_removed_hook_does_not_run_even_in_an_existing_graph_or_if_it_removes_itself) {
  with_a_probe([](Probe& module, Events& events) {
    auto opens = module.register_full_backward_pre_hook(note(events, "opens"));
    module.register_full_backward_hook(note(events, "closes"));
    Module::HookHandle once;
    once = module.register_forward_pre_hook([&](Module&, const torch::Tensor&) {
      once.remove();
      events.push_back("once");
      return torch::Tensor();
    });
    module(input());
    auto loss = module(input()).sum();
    opens.remove();
    opens.remove();
    loss.backward();
    EXPECT_EQ(events, (Events{"once", "forward", "forward", "weight", "closes"}));
  });
}

TEST_IN_A_PROCESS(Module, the_graph_and_the_handles_of_hooks_can_outlive_the_module) {
  Events events;
  torch::Tensor loss;
  Module::HookHandle handle;
  {
    Probe module(events);
    handle = module.register_full_backward_pre_hook(note(events, "opens"));
    module.register_full_backward_hook(note(events, "closes"));
    loss = module(input()).sum();
  }
  events.clear();
  loss.backward();
  handle.remove();
  EXPECT_EQ(events, Events{"weight"});
}

TEST(Module, a_copy_of_a_module_has_none_of_its_hooks) {
  with_a_probe([](Probe& module, Events& events) {
    module.register_full_backward_pre_hook(note(events, "opens"));
    Probe copy(module);
    copy(input()).sum().backward();
    EXPECT_EQ(events, (Events{"forward", "weight"}));
  });
}

TEST_IN_A_PROCESS(Module, after_a_hook_throws_the_remaining_hooks_with_always_call_run) {
  const auto events_of = [](bool before_forward) {
    Events events;
    Probe module(events);
    const auto throws = [&](const std::string& event) {
      return [&events, event](Module&, const torch::Tensor&) -> torch::Tensor {
        events.push_back(event);
        throw std::domain_error(event);
      };
    };
    const auto note = [&](const std::string& event) {
      return [&events, event](Module&, const torch::Tensor& y) {
        events.push_back(event + (y.defined() ? "" : " without output"));
        return torch::Tensor();
      };
    };
    if (before_forward) module.register_forward_pre_hook(throws("pre-hook"));
    module.register_forward_hook(note("first"), true);
    module.register_forward_hook(throws("hook"));
    module.register_forward_hook(note("plain"));
    module.register_forward_hook(note("last"), true);
    EXPECT_THROW(module(input()), std::domain_error);
    EXPECT_EQ(module.current_call(), nullptr);
    return events;
  };
  EXPECT_EQ(events_of(true), (Events{"pre-hook", "first without output", "last without output"}));
  EXPECT_EQ(events_of(false), (Events{"forward", "first", "hook", "last without output"}));
}

}  // namespace
}  // namespace fsdp
