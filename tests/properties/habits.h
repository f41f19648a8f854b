#pragma once

#include <base/torch.h>

#include <string>
#include <vector>

namespace fsdp {

// An operation that users write into their training loops: it changes one tensor of
// model.parameters(), or its gradient, by an amount that depends on all elements of the tensor. It
// runs under NoGradGuard.
struct Habit {
  std::string name;
  // true: `change` changes the gradient of `p`, which must be defined; false: it changes `p`
  // itself.
  bool of_gradient;
  void (*change)(at::Tensor p);
};

const std::vector<Habit>& habits();
// Returns the element of habits() with this name; null if there is none.
const Habit* habit_named(const std::string& name);

}  // namespace fsdp
