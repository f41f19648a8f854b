#include <strategies/fsdp/modules_of_units.h>
#include <strategies/fsdp/what_backward_reads.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

namespace fsdp {
namespace {

using Units = std::vector<std::shared_ptr<FlatParameter>>;

// Who holds the parameters of the units: modules, and the graphs that will read them. The node that
// adds up a parameter's gradient holds the parameter too, but reads no value.
int64_t holders(const Units& units) {
  int64_t count = 0;
  for (const auto& unit : units) {
    count += static_cast<int64_t>(unit->parameters().front().tensor.storage().use_count());
    for (const auto& [name, parameter] : unit->parameters()) {
      count += static_cast<int64_t>(parameter.use_count());
      if (torch::autograd::impl::try_get_grad_accumulator(parameter)) --count;
    }
  }
  return count;
}

// Whether backward of what `module` computes itself reads one of `parameters`.
bool reads(const torch::nn::Module& module, const std::set<const at::TensorImpl*>& parameters) {
  const auto* hookable = dynamic_cast<const Module*>(&module);
  if (hookable != nullptr && !hookable->reads_parameters_in_backward()) return false;
  return std::ranges::any_of(module.parameters(/*recurse=*/false), [&](const auto& parameter) {
    return parameters.contains(parameter.unsafeGetTensorImpl());
  });
}

}  // namespace

void note_what_backward_reads(const torch::nn::Module& root, ShardLayout& layout) {
  const auto modules = modules_of_units(root, layout);
  for (size_t unit = 0; unit < modules.size(); ++unit) {
    const Module* module = modules[unit];
    if (module != nullptr && !module->reads_parameters_in_backward())
      layout.unread_in_backward.insert(unit);
  }
  layout.root_until = root_until(root, layout);
}

std::optional<size_t> root_until(const torch::nn::Module& root, const ShardLayout& layout) {
  std::set<const at::TensorImpl*> of_root;
  std::set<std::string> names;
  for (const auto& parameter : layout.parameters)
    if (layout.units[parameter.unit].root) names.insert(parameter.name);
  for (const auto& [name, parameter] : distinct_parameters(root))
    if (names.contains(name)) of_root.insert(parameter.unsafeGetTensorImpl());
  if (of_root.empty()) return {};

  std::map<std::string, size_t> units;
  for (size_t unit = 0; unit < layout.units.size(); ++unit)
    if (!layout.units[unit].root) units[layout.units[unit].name] = unit;

  std::optional<size_t> before;  // the last unit met: it ends after all that comes behind it
  for (const auto& item : root.named_modules("", /*include_self=*/true)) {
    const auto unit = units.find(item.key());
    if (unit != units.end()) before = unit->second;
    if (reads(*item.value(), of_root)) return before;
  }
  return before;
}

void reshard_root_early(Module& root, const FullySharded& sharded, size_t unit) {
  Units of_root;
  for (size_t i = 0; i < sharded.units().size(); ++i)
    if (sharded.layout().units[i].root) of_root.push_back(sharded.units()[i]);

  const auto idle = std::make_shared<int64_t>(std::numeric_limits<int64_t>::max());
  root.register_forward_pre_hook([of_root, idle](Module&, const at::Tensor&) {
    *idle = std::min(*idle, holders(of_root));
    return at::Tensor();
  });
  Module* module = modules_of_units(root, sharded.layout())[unit];
  module->register_full_backward_hook([of_root, idle](Module&) {
    if (holders(of_root) > *idle) return;
    for (const auto& one : of_root)
      one->reshard();
  });
}

}  // namespace fsdp
