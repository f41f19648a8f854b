#include <base/todo.h>
#include <keep_fp32.h>

#include <set>

namespace fsdp {

void keep_in_fp32(std::vector<UnitPlan>& plan, Module& root, const ParameterFilter& keep) {
  todo("keep_in_fp32", "7.9");
}

}  // namespace fsdp
