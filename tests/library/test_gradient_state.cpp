#include <gradient_state.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <common/expect_text.h>
#include <common/in_a_process.h>

// Tests the table of gradient_state.h without ranks: what each event does to the gradient of one
// parameter. A trap is a tensor in .grad that throws when its values are read.
namespace fsdp {
namespace {

using enum GradientState;

// A parameter of sizes [2, 3], of which this rank owns 4 elements, with the object that tracks its
// gradient.
struct Parameter {
  at::Tensor leaf{at::zeros({4}).set_requires_grad(true)};
  at::Tensor whole{at::zeros({2, 3}).set_requires_grad(true)};
  at::Tensor not_reduced{at::zeros({4})}, misplaced{at::zeros({4})};
  ParameterGradient gradient{leaf, whole, not_reduced, misplaced};

  at::Tensor& of_leaf() const { return leaf.mutable_grad(); }
  at::Tensor& of_whole() const { return whole.mutable_grad(); }
};

// Returns a parameter whose gradient is in the given state. If the state keeps a gradient (complete
// and incomplete), all its elements are ones.
Parameter parameter_in(GradientState state) {
  Parameter one;
  if (state == in_unit) return one;
  one.gradient.give();
  one.of_leaf() = at::ones({4});
  if (state == incomplete || state == broken) one.gradient.hide();
  if (state == broken) one.gradient.break_off();
  if (state == GradientState::misplaced) one.gradient.misplace();
  return one;
}

// Returns a parameter whose gradient is incomplete, and whose local sum has only twos. A local sum
// is the sum of the gradients that this rank has computed in no_sync().
Parameter parameter_with_local_sum() {
  Parameter one = parameter_in(complete);
  one.of_whole() = at::full({2, 3}, 2.0);
  one.gradient.keep_local_sum();
  one.gradient.hide();
  return one;
}

const char* name_of(std::optional<GradientState> state) {
  static const std::map<GradientState, const char*> names{{in_unit, "in_unit"},
                                                          {complete, "complete"},
                                                          {incomplete, "incomplete"},
                                                          {broken, "broken"},
                                                          {GradientState::misplaced, "misplaced"}};
  return state ? names.at(*state) : "internal error";
}

using Change = std::function<void(Parameter&)>;

// Returns the row of the table in gradient_state.h for `event`: for each state before the event,
// the state after it, or "internal error" if the event throws.
std::map<std::string, std::string> row_of(const Change& event) {
  std::map<std::string, std::string> row;
  for (const auto state : {in_unit, complete, incomplete, broken, GradientState::misplaced}) {
    Parameter one = parameter_in(state);
    EXPECT_STREQ(name_of(one.gradient.state()), name_of(state));
    std::optional<GradientState> after;
    try {
      event(one);
      after = one.gradient.state();
    } catch (const std::logic_error& error) {
      EXPECT_CONTAINS(error.what(), "internal error: ");
      EXPECT_CONTAINS(error.what(), std::string("of a gradient that is ") + name_of(state));
    }
    row[name_of(state)] = name_of(after);
  }
  return row;
}

// Returns a row of the table from its cells, in the order of the table's columns.
std::map<std::string, std::string> states_row(const std::vector<std::string>& states) {
  return {{"in_unit", states[0]},
          {"complete", states[1]},
          {"incomplete", states[2]},
          {"broken", states[3]},
          {"misplaced", states[4]}};
}

const std::string kError = "internal error";

TEST(GradientState, each_event_changes_the_gradient_state_as_the_table_in_gradient_state_h_says) {
  in_a_process([] {
    const auto event = [](auto function) {
      return row_of([=](Parameter& one) { function(one.gradient); });
    };
    EXPECT_EQ(event([](auto& g) { g.give(); }),
              states_row({"complete", kError, kError, kError, kError}));
    EXPECT_EQ(event([](auto& g) { g.see_users_changes(); }),
              states_row({"in_unit", "complete", "incomplete", "broken", "complete"}));
    EXPECT_EQ(event([](auto& g) { g.begin_pass(true, false); }),
              states_row({"in_unit", "incomplete", "incomplete", "broken", kError}));
    EXPECT_EQ(event([](auto& g) { g.gradient_of_leaf(); }),
              states_row({"in_unit", "complete", "complete", "broken", "misplaced"}));
    EXPECT_EQ(event([](auto& g) { g.show_for_pass(true); }),
              states_row({"in_unit", "complete", "complete", "broken", "misplaced"}));
    EXPECT_EQ(event([](auto& g) { g.hide(); }),
              states_row({kError, "incomplete", kError, kError, kError}));
    EXPECT_EQ(event([](auto& g) { g.break_off(); }),
              states_row({"in_unit", "complete", "broken", "broken", "misplaced"}));
    EXPECT_EQ(event([](auto& g) { g.drop(); }),
              states_row({"in_unit", "complete", "complete", "broken", "complete"}));
    EXPECT_EQ(event([](auto& g) { g.misplace(); }),
              states_row({"in_unit", "misplaced", "misplaced", "misplaced", "misplaced"}));
  });
}

TEST(GradientState,
     a_gradient_that_the_user_dropped_is_noticed_when_a_backward_pass_begins_or_throws) {
  in_a_process([] {
    const auto event = [](auto function) {
      return row_of([=](Parameter& one) {
        one.of_leaf().reset();
        function(one.gradient);
      });
    };
    const auto seen = states_row({"in_unit", "complete", "complete", "complete", "complete"});
    EXPECT_EQ(event([](auto& g) { g.see_users_changes(); }), seen);
    EXPECT_EQ(event([](auto& g) { g.drop(), g.see_users_changes(); }), seen);
    EXPECT_EQ(event([](auto& g) { g.break_off(); }),
              states_row({"in_unit", "complete", "complete", "complete", "misplaced"}));
  });
}

TEST(GradientState, a_throwing_tensor_that_is_put_back_into_grad_hides_the_gradient_again) {
  in_a_process([] {
    Parameter one = parameter_in(complete);
    one.of_leaf() = one.not_reduced;
    one.gradient.see_users_changes();
    EXPECT_EQ(one.gradient.state(), incomplete);
    EXPECT_TRUE(one.gradient.show_for_pass(true));
    EXPECT_FALSE(one.of_leaf().defined());
  });
}

TEST(GradientState,
     grad_in_model_parameters_is_the_gradient_or_a_throwing_tensor_depending_on_the_state) {
  in_a_process([] {
    const Parameter shown = parameter_in(complete), hidden = parameter_in(incomplete),
                    lost = parameter_in(broken), put = parameter_in(GradientState::misplaced);
    EXPECT_TRUE(at::equal(shown.of_leaf(), at::ones({4})));
    EXPECT_FALSE(shown.gradient.is_hidden());
    EXPECT_TRUE(hidden.of_leaf().is_same(hidden.not_reduced));
    EXPECT_TRUE(hidden.gradient.is_hidden());
    EXPECT_TRUE(lost.of_leaf().is_same(lost.not_reduced));
    EXPECT_TRUE(lost.gradient.is_hidden());
    EXPECT_TRUE(put.of_leaf().is_same(put.misplaced));
    EXPECT_FALSE(put.gradient.is_hidden());
  });
}

TEST(GradientState, a_backward_pass_hides_a_gradient_in_model_parameters_until_the_pass_ends) {
  in_a_process([] {
    Parameter one = parameter_in(complete);
    one.gradient.begin_pass(/*trainable=*/true, /*unit_waits=*/false);
    EXPECT_TRUE(one.gradient.is_hidden());
    EXPECT_TRUE(one.gradient.show_for_pass(true));
    EXPECT_TRUE(at::equal(one.of_leaf(), at::ones({4})));
  });
}

TEST(GradientState, a_backward_pass_hides_a_frozen_parameters_gradient_only_if_there_is_one) {
  in_a_process([] {
    Parameter with = parameter_in(complete), without = parameter_in(complete);
    without.of_leaf().reset();
    with.gradient.begin_pass(/*trainable=*/false, false);
    without.gradient.begin_pass(/*trainable=*/false, false);
    EXPECT_TRUE(with.gradient.is_hidden());
    EXPECT_EQ(without.gradient.state(), complete);
    EXPECT_TRUE(with.gradient.show_for_pass(false));
    EXPECT_FALSE(without.gradient.show_for_pass(false));
  });
}

TEST(GradientState, a_gradient_that_the_user_puts_into_grad_during_a_backward_pass_stays) {
  in_a_process([] {
    Parameter one = parameter_in(incomplete);
    one.of_leaf() = at::full({4}, 5.0);
    one.gradient.gradient_of_leaf();
    EXPECT_TRUE(one.gradient.show_for_pass(true));
    EXPECT_TRUE(at::equal(one.of_leaf(), at::full({4}, 5.0)));
    one.gradient.hide();
    one.gradient.show_for_pass(true);
    EXPECT_TRUE(at::equal(one.of_leaf(), at::full({4}, 5.0)));
  });
}

TEST(GradientState, after_a_backward_that_threw_a_gradient_stays_hidden_until_it_is_dropped) {
  in_a_process([] {
    Parameter one = parameter_in(broken);
    one.gradient.see_users_changes();
    one.gradient.begin_pass(true, false);
    EXPECT_FALSE(one.gradient.show_for_pass(true));
    EXPECT_TRUE(one.gradient.is_hidden());
    one.gradient.zero_grad();
    EXPECT_FALSE(one.of_leaf().defined());
    EXPECT_FALSE(one.gradient.show_for_pass(true))
        << "the current backward pass has lost a part of the gradient";
    one.gradient.see_users_changes();
    EXPECT_TRUE(one.gradient.show_for_pass(true));
  });
}

TEST(GradientState, a_backward_pass_that_throws_drops_the_sum_of_earlier_backward_passes) {
  in_a_process([] {
    Parameter one = parameter_with_local_sum();
    one.gradient.begin_pass(true, true);
    one.gradient.break_off();
    EXPECT_FALSE(one.of_whole().defined());
    one.of_leaf().reset();
    one.gradient.see_users_changes();
    EXPECT_TRUE(one.gradient.show_for_pass(true));
    EXPECT_FALSE(one.of_leaf().defined());
  });
}

TEST(GradientState, a_backward_pass_that_throws_frees_the_earlier_gradient_in_model_parameters) {
  in_a_process([] {
    const at::Tensor earlier = at::ones({4});
    Parameter one = parameter_in(complete);
    one.of_leaf() = earlier;
    one.gradient.begin_pass(true, false);
    one.gradient.break_off();
    EXPECT_EQ(earlier.use_count(), 1);
  });
}

TEST(GradientState,
     when_backward_begins_the_throwing_tensor_for_a_misplaced_gradient_is_removed_from_grad) {
  in_a_process([] {
    Parameter one = parameter_in(GradientState::misplaced);
    one.gradient.see_users_changes();
    EXPECT_FALSE(one.of_leaf().defined());
  });
}

TEST(GradientState, during_backward_a_no_sync_sum_is_in_grad_of_the_modules_parameter) {
  in_a_process([] {
    Parameter one = parameter_with_local_sum();
    EXPECT_EQ(one.gradient.local_sum(), LocalSum::kept);
    EXPECT_FALSE(one.of_whole().defined());
    one.gradient.see_users_changes();
    EXPECT_EQ(one.gradient.local_sum(), LocalSum::kept);
    one.gradient.begin_pass(true, true);
    EXPECT_EQ(one.gradient.local_sum(), LocalSum::none);
    EXPECT_TRUE(at::equal(one.of_whole(), at::full({2, 3}, 2.0)));
  });
}

TEST(GradientState, a_dropped_no_sync_sum_becomes_zeros_if_its_unit_still_has_to_be_reduced) {
  in_a_process([] {
    const std::vector<Change> drops{
        [](Parameter& one) { one.gradient.drop(); },
        [](Parameter& one) { one.gradient.misplace(); },
        [](Parameter& one) { one.of_leaf().reset(); },
    };
    for (const Change& drop : drops) {
      for (const bool unit_waits : {true, false}) {
        Parameter one = parameter_with_local_sum();
        drop(one);
        one.gradient.see_users_changes();
        EXPECT_EQ(one.gradient.local_sum(), LocalSum::dropped);
        // Sets .grad of the module's parameter to an ordinary tensor. In training, .grad has a trap
        // here: a tensor that throws when it is read.
        one.of_whole() = at::ones({2, 3});
        one.gradient.begin_pass(true, unit_waits);
        EXPECT_EQ(one.gradient.local_sum(), LocalSum::none);
        ASSERT_EQ(one.of_whole().defined(), unit_waits);
        EXPECT_TRUE(!unit_waits || at::equal(one.of_whole(), at::zeros({2, 3})));
      }
    }
  });
}

TEST(GradientState, zero_grad_drops_the_sum_of_gradients_from_no_sync) {
  in_a_process([] {
    Parameter one = parameter_with_local_sum();
    one.gradient.zero_grad();
    EXPECT_EQ(one.gradient.local_sum(), LocalSum::none);
    EXPECT_EQ(one.gradient.state(), complete);
    EXPECT_FALSE(one.of_leaf().defined());
  });
}

TEST(GradientState, a_no_sync_sum_is_kept_even_if_model_parameters_was_never_called) {
  in_a_process([] {
    Parameter one = parameter_in(in_unit);
    one.of_whole() = at::ones({2, 3});
    one.gradient.keep_local_sum();
    one.gradient.see_users_changes();
    EXPECT_EQ(one.gradient.local_sum(), LocalSum::kept);
    EXPECT_FALSE(one.gradient.show_for_pass(true));
  });
}

}  // namespace
}  // namespace fsdp
