#include <nn/unit_policy.h>

#include <utility>

namespace fsdp {

WrapPolicy wrap_none() {
  return wrap_by_hand({});
}

WrapPolicy wrap_by_hand(std::vector<Module*> modules) {
  return WrapByHand{std::move(modules)};
}

}  // namespace fsdp
