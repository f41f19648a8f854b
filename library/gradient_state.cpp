#include <gradient_state.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace fsdp {
namespace {

const char* name_of(GradientState state) {
  switch (state) {
    case GradientState::in_unit:
      return "in_unit";
    case GradientState::complete:
      return "complete";
    case GradientState::incomplete:
      return "incomplete";
    case GradientState::broken:
      return "broken";
    case GradientState::misplaced:
      return "misplaced";
  }
  return "unknown";
}

[[noreturn]] void refuse_event(const char* event, GradientState state) {
  throw std::logic_error(std::string("internal error: ") + event + " of a gradient that is " +
                         name_of(state));
}

}  // namespace

ParameterGradient::ParameterGradient(at::Tensor leaf, at::Tensor whole, at::Tensor not_reduced,
                                     at::Tensor misplaced)
    : leaf_(std::move(leaf)),
      whole_(std::move(whole)),
      not_reduced_(std::move(not_reduced)),
      misplaced_(std::move(misplaced)) {}

bool ParameterGradient::is_hidden() const {
  return leaf_.grad().is_same(not_reduced_);
}

void ParameterGradient::give() {
  switch (state_) {
    case GradientState::in_unit:
      state_ = GradientState::complete;
      return;
    case GradientState::complete:
    case GradientState::incomplete:
    case GradientState::broken:
    case GradientState::misplaced:
      refuse_event("give()", state_);
  }
}

void ParameterGradient::see_users_changes() {
  switch (state_) {
    case GradientState::in_unit:
      return;
    case GradientState::complete:
      if (is_hidden()) {
        state_ = GradientState::incomplete;
        return;
      }
      break;
    case GradientState::incomplete:
    case GradientState::broken:
      if (is_hidden()) return;
      break;
    case GradientState::misplaced:
      if (leaf_.grad().is_same(misplaced_)) leaf_.mutable_grad().reset();
      break;
  }
  state_ = GradientState::complete;
  earlier_.reset();
  drop_local_sum();
}

void ParameterGradient::begin_pass(bool trainable, bool unit_waits) {
  switch (local_sum_) {
    case LocalSum::none:
      break;
    case LocalSum::kept:
      whole_.mutable_grad() = std::exchange(sum_, {});
      break;
    case LocalSum::dropped:
      whole_.mutable_grad().reset();
      if (unit_waits)
        whole_.mutable_grad() =
            at::zeros(whole_.sizes(), leaf_.detach().options().dtype(whole_.scalar_type()));
      break;
  }
  local_sum_ = LocalSum::none;
  switch (state_) {
    case GradientState::in_unit:
    case GradientState::incomplete:
    case GradientState::broken:
      return;
    case GradientState::complete:
      // Puts the trap (a tensor that throws when it is read) into .grad of the leaf also if the
      // parameter is frozen but has a gradient. Otherwise an optimizer's step during the pass could
      // update the frozen parameter and then throw at the trap of another parameter.
      if (trainable || leaf_.grad().defined()) hide();
      return;
    case GradientState::misplaced:
      refuse_event("begin_pass()", state_);
  }
}

void ParameterGradient::gradient_of_leaf() {
  if (!is_hidden()) return;
  switch (state_) {
    case GradientState::in_unit:
    case GradientState::misplaced:
      return;
    case GradientState::complete:
    case GradientState::incomplete:
      show();
      return;
    case GradientState::broken:
      leaf_.mutable_grad().reset();
      return;
  }
}

void ParameterGradient::keep_local_sum() {
  local_sum_ = LocalSum::kept;
  sum_ = std::exchange(whole_.mutable_grad(), {});
}

bool ParameterGradient::show_for_pass(bool trainable) {
  switch (state_) {
    case GradientState::in_unit:
    case GradientState::broken:
      return false;
    case GradientState::misplaced:
      return trainable;
    case GradientState::complete:
    case GradientState::incomplete:
      break;
  }
  const bool awaited = trainable || is_hidden();
  show();
  return awaited;
}

// If .grad of the leaf is the trap (a tensor that throws when it is read), show() replaces it by
// the .grad from before the pass. If the user has dropped or replaced .grad during the pass, show()
// leaves .grad as the user has set it.
void ParameterGradient::show() {
  if (is_hidden()) leaf_.mutable_grad() = earlier_;
  earlier_.reset();
  state_ = GradientState::complete;
}

void ParameterGradient::hide() {
  switch (state_) {
    case GradientState::complete:
      earlier_ = std::exchange(leaf_.mutable_grad(), not_reduced_);
      state_ = GradientState::incomplete;
      return;
    case GradientState::in_unit:
    case GradientState::incomplete:
    case GradientState::broken:
    case GradientState::misplaced:
      refuse_event("hide()", state_);
  }
}

void ParameterGradient::break_off() {
  whole_.mutable_grad().reset();
  switch (state_) {
    case GradientState::in_unit:
    case GradientState::misplaced:
      return;
    case GradientState::complete:
    case GradientState::incomplete:
    case GradientState::broken:
      earlier_.reset();
      state_ = is_hidden() ? GradientState::broken : GradientState::complete;
      return;
  }
}

void ParameterGradient::drop() {
  leaf_.mutable_grad().reset();
  drop_local_sum();
  switch (state_) {
    case GradientState::in_unit:
    case GradientState::complete:
    case GradientState::broken:
      return;
    case GradientState::incomplete:
    case GradientState::misplaced:
      earlier_.reset();
      state_ = GradientState::complete;
      return;
  }
}

void ParameterGradient::misplace() {
  drop();
  switch (state_) {
    case GradientState::in_unit:
      return;
    case GradientState::complete:
    case GradientState::incomplete:
    case GradientState::broken:
    case GradientState::misplaced:
      leaf_.mutable_grad() = misplaced_;
      state_ = GradientState::misplaced;
      return;
  }
}

void ParameterGradient::zero_grad() {
  drop();
  local_sum_ = LocalSum::none;
}

void ParameterGradient::drop_local_sum() {
  switch (local_sum_) {
    case LocalSum::kept:
      sum_.reset();
      local_sum_ = LocalSum::dropped;
      return;
    case LocalSum::none:
    case LocalSum::dropped:
      return;
  }
}

}  // namespace fsdp
