#include <base/todo.h>
#include <flat_parameter.h>
#include <memory/live_bytes.h>
#include <memory/storage.h>

#include <stdexcept>

namespace fsdp {

void FlatParameter::set_mixed_precision(const MixedPrecisionPolicy& policy) {
  todo("FlatParameter::set_mixed_precision", "2.6");
}

}  // namespace fsdp
