#include <gtest/gtest.h>
#include <nn/gradient_hook.h>

#include "hook_events.h"
#include "in_a_process.h"

namespace fsdp {
namespace {

at::Tensor leaf() {
  return at::ones({2}).requires_grad_();
}

TEST(GradientHook, hooks_of_a_parameter_all_run_in_the_order_of_their_registration) {
  in_a_process([] {
    Events events;
    const at::Tensor parameter = leaf();
    for (const char* name : {"first", "second", "third"})
      register_post_accumulate_grad_hook(parameter, [&, name] { events.push_back(name); });
    (parameter * parameter).sum().backward();
    EXPECT_EQ(events, (Events{"first", "second", "third"}));
  });
}

TEST(GradientHook, a_hook_of_a_frozen_parameter_runs_once_it_is_trainable) {
  in_a_process([] {
    Events events;
    const at::Tensor parameter = at::ones({2});
    register_post_accumulate_grad_hook(parameter, [&] { events.push_back("hook"); });
    at::Tensor(parameter).requires_grad_();
    parameter.sum().backward();
    EXPECT_EQ(events, (Events{"hook"}));
  });
}

TEST(GradientHook, one_that_is_removed_leaves_the_others) {
  in_a_process([] {
    Events events;
    const at::Tensor parameter = leaf();
    const auto note = [&](const char* name) {
      return register_post_accumulate_grad_hook(parameter, [&, name] { events.push_back(name); });
    };
    note("first");
    const auto remove = note("second");
    std::function<void()> remove_itself;
    remove_itself = register_post_accumulate_grad_hook(parameter, [&] { remove_itself(); });
    note("fourth");
    remove();
    remove();
    for (int pass = 0; pass < 2; ++pass)
      parameter.sum().backward();
    EXPECT_EQ(events, (Events{"first", "fourth", "first", "fourth"}));
  });
}

TEST(GradientHook, may_be_removed_after_its_parameter_is_gone) {
  in_a_process([] { register_post_accumulate_grad_hook(leaf(), [] {})(); });
}

TEST(GradientHook, none_runs_after_one_that_has_taken_the_gradient) {
  in_a_process([] {
    const at::Tensor parameter = leaf();
    register_post_accumulate_grad_hook(parameter, [&] { parameter.mutable_grad().reset(); });
    register_post_accumulate_grad_hook(parameter, [] { FAIL() << "there is no .grad"; });
    parameter.sum().backward();
  });
}

}  // namespace
}  // namespace fsdp
