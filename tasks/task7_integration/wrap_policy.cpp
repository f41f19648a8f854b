#include <base/todo.h>
#include <wrap_policy.h>

#include <algorithm>
#include <set>
#include <stdexcept>

namespace fsdp {

WrapPolicy wrap_blocks() {
  todo("wrap_blocks", "7.1");
}

WrapPolicy wrap_by_type(std::string name) {
  todo("wrap_by_type", "7.3");
}

}  // namespace fsdp
