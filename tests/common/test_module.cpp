#include <gtest/gtest.h>
#include <nn/module.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "hook_events.h"
#include "in_a_process.h"

namespace fsdp {
namespace {

// y = f(w x) with a record of when w's gradient is accumulated.
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

TEST(Module, runs_forward_hooks_in_order_and_lets_them_replace_tensors) {
  with_a_probe([](Probe& module, Events& events) {
    module.register_forward_pre_hook([&](Module&, const torch::Tensor& x) {
      events.push_back("pre 1");
      return x * 2;
    });
    module.register_forward_pre_hook([&](Module&, const torch::Tensor& x) {
      events.push_back("pre 2");
      EXPECT_EQ(x.sum().item<float>(), 12);
      return torch::Tensor();
    });
    module.register_forward_hook([&](Module& self, const torch::Tensor& y) {
      events.push_back("post");
      EXPECT_EQ(&self, &module);
      return y + 1;
    });
    const auto y = module(torch::ones({2, 3}));
    EXPECT_EQ(events, (Events{"pre 1", "pre 2", "forward", "post"}));
    EXPECT_TRUE(torch::equal(y, torch::full({2, 3}, 4.0)));
  });
}

TEST(Module, backward_hooks_run_before_and_after_all_gradients_of_the_module) {
  in_a_process([] {
    Events events;
    Probe first(events), second(events);
    first.register_full_backward_pre_hook(note(events, "first opens"));
    first.register_full_backward_hook(note(events, "first closes"));
    second.register_full_backward_pre_hook(note(events, "second opens"));
    second.register_full_backward_hook(note(events, "second closes"));
    auto x = input();
    auto loss = second(first(x)).sum();
    events.clear();
    loss.backward();
    EXPECT_EQ(events, (Events{"second opens", "weight", "second closes", "first opens", "weight",
                              "first closes"}));
    EXPECT_TRUE(torch::equal(x.grad(), torch::full({2, 3}, 2.25)));
  });
}

// What the caller may do with the output, for every kind of output.
struct OutputCase {
  const char* name;
  Probe::Function finish;
  bool in_place;
};

class ModuleOutputs : public testing::TestWithParam<OutputCase> {};

TEST_P(ModuleOutputs, run_the_backward_pre_hook_before_the_gradients_once_per_call) {
  in_a_process([] {
    Events events;
    Probe module(events, GetParam().finish);
    note_backward(module, events);
    auto y = module(input());
    if (GetParam().in_place) y += 1;
    auto loss = (y * y).sum();
    events.clear();
    loss.backward();
    EXPECT_EQ(events, (Events{"opens", "weight", "closes"}));
  });
}

const Probe::Function kSame = [](torch::Tensor y) { return y; };
const Probe::Function kSqueezed = [](torch::Tensor y) { return y.unsqueeze(0).squeeze(); };
const Probe::Function kPart = [](torch::Tensor y) { return y[0].narrow(0, 1, 2); };
const Probe::Function kChanged = [](torch::Tensor y) {
  y[0].mul_(3);
  return y.view({6});
};
INSTANTIATE_TEST_SUITE_P(AsTheyCome, ModuleOutputs,
                         testing::Values(OutputCase{"Whole", kSame, false},
                                         OutputCase{"WholeChangedInPlace", kSame, true},
                                         OutputCase{"View", kSqueezed, false},
                                         OutputCase{"ViewChangedInPlace", kSqueezed, true},
                                         OutputCase{"Part", kPart, false},
                                         OutputCase{"PartChangedInPlace", kPart, true},
                                         OutputCase{"ChangedInside", kChanged, false},
                                         OutputCase{"ChangedInsideAndAfter", kChanged, true}),
                         [](const auto& info) { return std::string(info.param.name); });

class Reshape : public Module {
 public:
  torch::Tensor forward(torch::Tensor x) override { return x.view({-1}); }
};

TEST(Module, a_view_of_the_input_runs_the_hook_only_if_it_is_part_of_the_loss) {
  in_a_process([] {
    Events events;
    Reshape module;
    module.register_full_backward_pre_hook(note(events, "opens"));
    auto x = input() * 2;
    auto y = module(x);
    x.sum().backward();
    EXPECT_EQ(events, Events{});
    y.sum().backward();
    EXPECT_EQ(events, Events{"opens"});
  });
}

TEST(Module, an_input_of_a_hooked_module_must_not_be_changed_in_place) {
  in_a_process([] {
    class InPlace : public Module {
     public:
      torch::Tensor forward(torch::Tensor x) override { return x.mul_(2); }
    } module;
    module.register_full_backward_hook([](Module&) {});
    EXPECT_THROW(module(input() * 1), c10::Error);
  });
}

TEST(Module, removed_hooks_do_not_run_even_in_an_existing_graph) {
  with_a_probe([](Probe& module, Events& events) {
    auto opens = module.register_full_backward_pre_hook(note(events, "opens"));
    module.register_full_backward_hook(note(events, "closes"));
    auto pre = module.register_forward_pre_hook([&](Module&, const torch::Tensor&) {
      events.push_back("pre");
      return torch::Tensor();
    });
    pre.remove();
    auto loss = module(input()).sum();
    opens.remove();
    opens.remove();
    loss.backward();
    EXPECT_EQ(events, (Events{"forward", "weight", "closes"}));
  });
}

TEST(Module, a_hook_may_remove_itself_while_it_runs) {
  with_a_probe([](Probe& module, Events& events) {
    Module::HookHandle handle;
    handle = module.register_forward_pre_hook([&](Module&, const torch::Tensor&) {
      handle.remove();
      events.push_back("once");
      return torch::Tensor();
    });
    module(input());
    module(input());
    EXPECT_EQ(events, (Events{"once", "forward", "forward"}));
  });
}

TEST(Module, the_graph_and_the_handles_may_outlive_the_module) {
  in_a_process([] {
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
  });
}

TEST(Module, a_copy_has_no_hooks) {
  with_a_probe([](Probe& module, Events& events) {
    module.register_full_backward_pre_hook(note(events, "opens"));
    Probe copy(module);
    copy(input()).sum().backward();
    EXPECT_EQ(events, (Events{"forward", "weight"}));
  });
}

TEST(Module, if_a_hook_throws_the_always_called_hooks_run_that_have_not_begun) {
  in_a_process([] {
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
  });
}

}  // namespace
}  // namespace fsdp
