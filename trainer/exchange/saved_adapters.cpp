#include <exchange/saved_adapters.h>
#include <nn/lora.h>

#include <algorithm>
#include <stdexcept>

namespace fsdp {
namespace {

const std::string kWeight = "weight";

}  // namespace

std::vector<ModelState::Parameter> without_adapters(
    const std::vector<ModelState::Parameter>& parameters) {
  std::vector<ModelState::Parameter> others;
  for (const auto& parameter : parameters)
    if (!is_lora(parameter.name)) others.push_back(parameter);
  return others;
}

SavedAdapters::SavedAdapters(const SavedParameters& saved) : saved_(saved) {
  if (without_adapters(saved.parameters).size() == saved.parameters.size()) return;
  const auto& run = saved.checkpoint.run;
  const nlohmann::ordered_json::json_pointer rank("/lora/rank"), alpha("/lora/alpha");
  const bool known = run.is_object() && run.contains(rank) && run.contains(alpha) &&
                     run.at(rank).is_number() && run.at(alpha).is_number() &&
                     run.at(rank).get<double>() > 0;
  if (!known)
    throw std::runtime_error(saved.checkpoint.folder +
                             ": has adapters, and its settings have no rank and alpha of them");
  scale_ = run.at(alpha).get<double>() / run.at(rank).get<double>();
}

const ModelState::Parameter* SavedAdapters::find(const std::string& name) const {
  const auto found = std::ranges::find(saved_.parameters, name, &ModelState::Parameter::name);
  return found == saved_.parameters.end() ? nullptr : &*found;
}

void SavedAdapters::merge_into(const ModelState::Parameter& parameter,
                               const at::Tensor& whole) const {
  if (!parameter.name.ends_with(kWeight)) return;
  const std::string layer = parameter.name.substr(0, parameter.name.size() - kWeight.size());
  const auto *a = find(layer + "lora.A"), *b = find(layer + "lora.B");
  if (a == nullptr || b == nullptr) return;
  const at::Tensor down = at::empty(a->sizes, at::kFloat), up = at::empty(b->sizes, at::kFloat);
  saved_.read(*a, down);
  saved_.read(*b, up);
  whole.add_(up.mm(down) * scale_);
}

}  // namespace fsdp
