#pragma once

#include <base/torch.h>

#include <string>
#include <vector>

namespace fsdp {

// An operation of users' programs on one tensor of model.parameters(), or on its gradient. It
// depends on all elements of the tensor. It runs with gradients switched off (NoGradGuard).
struct Habit {
  std::string name;
  bool of_gradient;  // true: it changes .grad, which is defined; false: the parameter
  void (*change)(at::Tensor p);
};

const std::vector<Habit>& habits();
// Returns the habit of this name; null if there is none.
const Habit* habit_named(const std::string& name);

}  // namespace fsdp
