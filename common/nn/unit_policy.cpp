#include <nn/unit_policy.h>

namespace fsdp {

WrapPolicy wrap_none() {
  return wrap_by_hand({});
}

WrapPolicy wrap_by_hand(std::vector<Module*> modules) {
  return [modules](Module&) { return modules; };
}

}  // namespace fsdp
