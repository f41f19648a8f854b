#include <strategies/fsdp/modules_of_units.h>
#include <strategies/fsdp/what_backward_reads.h>

namespace fsdp {

void note_what_backward_reads(const torch::nn::Module& root, ShardLayout& layout) {
  const auto modules = modules_of_units(root, layout);
  for (size_t unit = 0; unit < modules.size(); ++unit) {
    const Module* module = modules[unit];
    if (module != nullptr && !module->reads_parameters_in_backward())
      layout.unread_in_backward.insert(unit);
  }
}

}  // namespace fsdp
