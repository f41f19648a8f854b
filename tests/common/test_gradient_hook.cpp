#include <gtest/gtest.h>
#include <nn/gradient_hook.h>

#include <memory>

#include "hook_events.h"
#include "in_a_process.h"

namespace fsdp {
namespace {

at::Tensor leaf() {
  return at::ones({2}).requires_grad_();
}

TEST_IN_A_PROCESS(GradientHook, a_hook_of_a_frozen_parameter_runs_after_the_parameter_is_unfrozen) {
  Events events;
  const at::Tensor parameter = at::ones({2});
  register_post_accumulate_grad_hook(parameter, [&] { events.push_back("hook"); });
  at::Tensor(parameter).requires_grad_();
  parameter.sum().backward();
  EXPECT_EQ(events, (Events{"hook"}));
}

TEST_IN_A_PROCESS(GradientHook, hooks_run_in_the_order_of_registration_unless_they_were_removed) {
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
    (parameter * parameter).sum().backward();
  EXPECT_EQ(events, (Events{"first", "fourth", "first", "fourth"}));
}

TEST_IN_A_PROCESS(GradientHook, a_hook_is_freed_with_its_parameter_and_can_be_removed_afterwards) {
  const auto held = std::make_shared<int>();
  const auto remove = register_post_accumulate_grad_hook(leaf(), [held] {});
  EXPECT_EQ(held.use_count(), 1) << "the hook outlives its parameter";
  remove();
}

TEST_IN_A_PROCESS(GradientHook, no_gradient_hook_runs_after_a_hook_that_resets_the_gradient) {
  Events events;
  const at::Tensor parameter = leaf();
  register_post_accumulate_grad_hook(parameter, [&] {
    events.push_back("takes");
    parameter.mutable_grad().reset();
  });
  register_post_accumulate_grad_hook(parameter, [&] { events.push_back("without .grad"); });
  parameter.sum().backward();
  EXPECT_EQ(events, Events{"takes"});
}

}  // namespace
}  // namespace fsdp
