#include <flat_parameter.h>

namespace fsdp {

void FlatParameter::set_mixed_precision(const MixedPrecisionPolicy&) {
  // All stays fp32.
}

}  // namespace fsdp
