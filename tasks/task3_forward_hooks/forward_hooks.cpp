#include <base/todo.h>
#include <forward_hooks.h>

namespace fsdp {

void register_forward_hooks(Module& module, std::shared_ptr<FlatParameter> unit,
                            bool reshard_after_forward) {
  todo("register_forward_hooks", "3.1");
}

}  // namespace fsdp
