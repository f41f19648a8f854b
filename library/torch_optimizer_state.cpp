#include <agreement/agreement.h>
#include <model_checks.h>
#include <part_mark.h>
#include <state/untrusted_json.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/serialize/archive.h>
#include <torch_optimizer_state.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

// The options and the states of torch's optimizers are read through their serialize() functions,
// which write numbers, pairs of numbers, and a tensor of the parameter's shape for each moment. A
// manifest lists the optimizer's class, its groups with their options, and the group and the keys
// of each parameter. A saved state has the manifest as the text of a JSON object:
//   {"optimizer": "AdamW", "groups": [{"lr": 0.01, "betas": [0.9, 0.999], ...}],
//    "params": {"scale": {"group": 0, "state": ["exp_avg", "exp_avg_sq", "step"]}}}
namespace fsdp {
namespace {

using Json = nlohmann::json;
using torch::optim::Optimizer;
using torch::optim::OptimizerParamState;
using OptionValues = std::map<std::string, c10::IValue>;
using Entries = std::vector<ShardedParameter>;

// The key of the manifest in the StateDict of an optimizer. The manifest, which manifest_of()
// makes, is a JSON text on the parameter groups.
const char* const kManifest = "param_groups";
const std::string kLoadTheSame = "load the same on every rank", kNoGroup = "no group";

template <class State>
std::unique_ptr<OptimizerParamState> make() {
  return std::make_unique<State>();
}

struct Class {
  const char* name;
  std::unique_ptr<OptimizerParamState> (*new_state)();
};

Class class_of(const Optimizer& optimizer) {
  using namespace torch::optim;
  if (dynamic_cast<const AdamW*>(&optimizer)) return {"AdamW", make<AdamWParamState>};
  if (dynamic_cast<const Adam*>(&optimizer)) return {"Adam", make<AdamParamState>};
  if (dynamic_cast<const SGD*>(&optimizer)) return {"SGD", make<SGDParamState>};
  if (dynamic_cast<const RMSprop*>(&optimizer)) return {"RMSprop", make<RMSpropParamState>};
  if (dynamic_cast<const Adagrad*>(&optimizer)) return {"Adagrad", make<AdagradParamState>};
  throw std::invalid_argument(
      "optim_state_dict: the optimizer must be AdamW, Adam, SGD, RMSprop or Adagrad; the state of "
      "another one cannot be saved by name");
}

// Returns the values that torch serializes for `part`, which is the options of a parameter group or
// the state of one parameter.
template <class Part>
OptionValues values_of(const Part& part) {
  const PartsAsTensors inside;
  torch::serialize::OutputArchive written;
  part.serialize(written);
  std::stringstream text;
  written.save_to(text);
  torch::serialize::InputArchive archive;
  archive.load_from(text);
  OptionValues values;
  for (const std::string& key : archive.keys())
    archive.read(key, values[key]);
  return values;
}

template <class Part>
void set_values(Part& part, const OptionValues& values) {
  torch::serialize::OutputArchive written;
  for (const auto& [key, value] : values)
    written.write(key, value);
  std::stringstream text;
  written.save_to(text);
  torch::serialize::InputArchive archive;
  archive.load_from(text);
  part.serialize(archive);
}

Json json_of(const c10::IValue& option) {
  if (option.isBool()) return option.toBool();
  if (option.isDouble()) return option.toDouble();
  Json all;
  for (const c10::IValue& element : option.toTupleRef().elements())
    all.push_back(json_of(element));
  return all;
}

c10::IValue option_like(const c10::IValue& own, const Json& saved) {
  if (own.isBool()) return saved.get<bool>();
  if (own.isDouble()) return saved.get<double>();
  std::vector<c10::IValue> all;
  for (const c10::IValue& element : own.toTupleRef().elements())
    all.push_back(option_like(element, saved.at(all.size())));
  return c10::ivalue::Tuple::create(std::move(all));
}

Json manifest_of(const Optimizer& optimizer, const Entries& entries) {
  Json manifest{{"optimizer", class_of(optimizer).name}, {"groups", Json::array()}};
  manifest["params"] = Json::object();
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const auto entry = std::ranges::find_if(
          entries, [&](const auto& one) { return one.leaf.is_same(parameter); });
      if (entry == entries.end()) {
        throw std::invalid_argument(
            "optim_state_dict: the optimizer holds a tensor that is not in model.parameters(); "
            "make the optimizer with model.parameters()");
      }
      Json& own = manifest["params"][entry->name];
      own = {{"group", manifest["groups"].size()}, {"state", Json::array()}};
      const auto state = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (state == optimizer.state().end()) continue;
      for (const auto& [key, value] : values_of(*state->second))
        own["state"].push_back(key);
    }
    Json& options = manifest["groups"].emplace_back();
    for (const auto& [key, value] : values_of(group.options()))
      options[key] = json_of(value);
  }
  return manifest;
}

std::string group_of(const Json& manifest, const std::string& parameter) {
  const Json& params = manifest.at("params");
  return params.contains(parameter) ? "group " + params[parameter].at("group").dump() : kNoGroup;
}

std::vector<RankInvariant> invariants_of(const Json& manifest, const Entries& entries,
                                         bool with_options) {
  std::vector<RankInvariant> invariants{{"the optimizer",
                                         manifest.at("optimizer").get<std::string>(),
                                         "make the same on every rank"}};
  // Key: a parameter group of the optimizer: "group 0", ... Value: the name of the group's first
  // parameter.
  std::map<std::string, std::string> first;
  for (const auto& entry : entries) {
    const std::string group = group_of(manifest, entry.name);
    first.try_emplace(group, entry.name);
    invariants.push_back({"where the optimizer has " + entry.name, "in " + group,
                          "put it into the same group on every rank"});
  }
  for (size_t i = 0; i < manifest.at("groups").size() && with_options; ++i) {
    const std::string group = "group " + std::to_string(i);
    for (const auto& [key, value] : manifest["groups"][i].items())
      invariants.push_back(
          {key + " of " + first[group] + " (" + group + ")", value.dump(),
           "set the same on every rank; a scheduler that looks at a loss needs the "
           "loss of all ranks"});
  }
  return invariants;
}

// Returns, as a text, what must be the same on all ranks in the state of a parameter: all keys, and
// the values that are numbers. Example: "exp_avg step=3".
std::string shape_of(const OptionValues& values, const ShardedParameter& entry) {
  std::string text;
  for (const auto& [key, value] : values) {
    text += (text.empty() ? "" : " ") + key;
    if (value.isInt()) {
      text += "=" + std::to_string(value.toInt());
    } else if (!value.isTensor() || value.toTensor().sizes() != entry.leaf.sizes() ||
               value.toTensor().scalar_type() != entry.leaf.scalar_type()) {
      throw std::invalid_argument("optim_state_dict: " + entry.name + "/" + key +
                                  " is not a tensor of the parameter's shape and dtype");
    }
  }
  return text;
}

// Collective. Returns the manifest of `optimizer` (JSON with its class, groups and options) and a
// map: index of a parameter in `entries` -> the optimizer's state of this rank's part of the
// parameter. Throws on every rank if manifests or states differ between ranks; elements of tensors
// are not compared.
std::pair<Json, std::map<size_t, OptionValues>> agreed(const Optimizer& optimizer,
                                                       Communicator& comm, const Entries& entries,
                                                       const std::string& where) {
  Json manifest;
  std::map<size_t, OptionValues> states;
  std::vector<RankInvariant> invariants;
  agree_on(comm, [&] {
    manifest = manifest_of(optimizer, entries);
    invariants = invariants_of(manifest, entries, /*with_options=*/true);
    for (size_t i = 0; i < entries.size(); ++i) {
      const auto found = optimizer.state().find(entries[i].leaf.unsafeGetTensorImpl());
      if (found != optimizer.state().end()) states[i] = values_of(*found->second);
      invariants.push_back({"the optimizer's state of " + entries[i].name,
                            states.contains(i) ? shape_of(states[i], entries[i]) : "none",
                            "make the same steps on every rank; continue from an earlier state"});
    }
  });
  check_same_on_all_ranks(comm, invariants, where, "make the same groups on every rank");
  return {manifest, states};
}

[[noreturn]] void refuse(const std::string& why) {
  throw std::invalid_argument(std::string(kLoadOptimizerState) + ": " + why);
}

Json manifest_in(const StateDict& state) {
  if (!state.contains(kManifest)) {
    refuse(std::string("the state lacks ") + kManifest +
           ", which describes the groups: an older version saved it, or it is not the state of an "
           "optimizer; save it again, or start without it");
  }
  const at::Tensor bytes = state.at(kManifest).contiguous();
  const auto* begin = static_cast<const char*>(bytes.const_data_ptr());
  try {
    return read_json_object<Json>({begin, bytes.nbytes()});
  } catch (const std::runtime_error& error) {
    refuse(std::string(kManifest) + " is damaged: it " + error.what());
  }
}

// Throws std::invalid_argument unless the two manifests (JSON with class, groups and options of an
// optimizer) name the same class of optimizer and have the same parameters in each group. The
// groups can be in another order.
void check_groups(const Json& own, const Json& saved) {
  const std::string mine = own.at("optimizer"), theirs = saved.at("optimizer");
  if (mine != theirs) {
    refuse("the state is that of " + theirs + ", and the optimizer is " + mine + "; make " +
           theirs + ", or start without the state");
  }
  Json params = saved.at("params");
  params.update(own.at("params"));
  // Key: a parameter group ("group 0", ...), of the optimizer in `first_of_own` and of the saved
  // state in `first_of_saved`. Value: the name of the group's first parameter.
  std::map<std::string, std::string> first_of_own, first_of_saved;
  for (const auto& [name, value] : params.items()) {
    const std::string group = group_of(own, name), saved_group = group_of(saved, name);
    const std::string& with = first_of_own.try_emplace(group, name).first->second;
    const std::string& also = first_of_saved.try_emplace(saved_group, name).first->second;
    if (with == also && (group == kNoGroup) == (saved_group == kNoGroup)) continue;
    const std::string& other = with != name ? with : also;
    refuse(name + " is in " + group + " of the optimizer and in " + saved_group +
           " of the state, and " + other + " in " + group_of(own, other) + " and in " +
           group_of(saved, other) + "; make the optimizer with the groups that were saved");
  }
}

// Throws std::invalid_argument unless `state` has exactly the names that `manifest` lists, and the
// manifest itself.
void check_complete(const StateDict& state, const Json& manifest) {
  std::set<std::string> listed{kManifest};
  for (const auto& [name, own] : manifest.at("params").items())
    for (const std::string key : own.at("state"))
      listed.insert(name + "/" + key);
  for (const std::string& key : listed)
    if (!state.contains(key)) refuse("the state lacks " + key);
  for (const auto& item : state)
    if (!listed.contains(item.key()))
      refuse("the state has " + item.key() + ", which the saved optimizer did not have");
}

// Returns the values that `state` has for the parameter of `entry` under the keys `keys`. If a
// value is a tensor, returns only this rank's part of it.
OptionValues values_in(const StateDict& state, const ShardedParameter& entry, const Json& keys) {
  OptionValues values;
  for (const std::string key : keys) {
    const std::string name = entry.name + "/" + key;
    const at::Tensor whole = state.at(name);
    if (whole.dim() == 0 && whole.scalar_type() == at::kLong) {
      values[key] = whole.item<int64_t>();
    } else if (whole.sizes() == entry.whole.sizes() && whole.is_floating_point()) {
      const at::Tensor own = whole.flatten().narrow(0, entry.begin, entry.leaf.numel());
      values[key] = own.view(entry.leaf.sizes()).to(entry.leaf.options()).clone();
    } else {
      refuse(name + " is " + dtype_and_sizes(whole) + ", and the parameter is " +
             dtype_and_sizes(entry.whole));
    }
  }
  return values;
}

}  // namespace

void check_optimizer_on_all_ranks(const Optimizer& optimizer, Communicator& comm,
                                  const Entries& entries) {
  agreed(optimizer, comm, entries, "check_optimizer");
}

StateDict optimizer_state(const Optimizer& optimizer, Communicator& comm, const Entries& entries,
                          bool replicated, const GatherStates& gather) {
  const CallerScope caller("optim_state_dict()");
  const auto [manifest, own] = agreed(optimizer, comm, entries, kSaveOptimizerState);
  const at::NoGradGuard no_grad;
  const std::string text = manifest.dump();
  StateDict state;
  state.insert(kManifest, at::tensor(std::vector<uint8_t>(text.begin(), text.end()), at::kByte));
  std::map<size_t, NamedTensors> tensors;
  for (const auto& [index, values] : own)
    for (const auto& [key, value] : values)
      if (value.isTensor())
        tensors[index][key] = value.toTensor();
      else
        state.insert(entries[index].name + "/" + key, at::scalar_tensor(value.toInt(), at::kLong));
  std::vector<RankInvariant> invariants;
  for (const auto& [name, tensor] : gather(tensors)) {
    state.insert(name, tensor);
    if (replicated) invariants.push_back(invariant_of_values(name, tensor, kReplicasDiffer));
  }
  if (replicated) check_same_on_all_ranks(comm, invariants, kSaveOptimizerState);
  return state;
}

void load_optimizer_state(Optimizer& optimizer, Communicator& comm, const Entries& entries,
                          const StateDict& state) {
  const CallerScope caller("load_optim_state_dict()");
  Json own, saved;
  agree_on(comm, [&] { own = manifest_of(optimizer, entries); });
  check_same_on_all_ranks(comm, invariants_of(own, entries, /*with_options=*/false),
                          kLoadOptimizerState);
  std::vector<OptionValues> options;  // the options of each parameter group of `optimizer`
  for (const auto& group : optimizer.param_groups())
    options.push_back(values_of(group.options()));
  std::map<void*, std::unique_ptr<OptimizerParamState>> states;
  std::vector<RankInvariant> invariants;
  agree_on(comm, [&] {
    saved = manifest_in(state);
    check_groups(own, saved);
    check_complete(state, saved);
    for (const auto& entry : entries) {
      if (!own["params"].contains(entry.name)) continue;
      const Json& from = saved["params"][entry.name];
      for (auto& [key, value] : options.at(own["params"][entry.name]["group"]))
        value = option_like(value, saved.at("groups").at(from.at("group").get<size_t>()).at(key));
      if (from.at("state").empty()) continue;
      auto& loaded = states[entry.leaf.unsafeGetTensorImpl()] = class_of(optimizer).new_state();
      set_values(*loaded, values_in(state, entry, from["state"]));
    }
    invariants = invariants_of(saved, entries, /*with_options=*/true);
    for (const auto& item : state)
      invariants.push_back(invariant_of_values(item.key(), item.value(), kLoadTheSame));
  });
  check_same_on_all_ranks(comm, invariants, kLoadOptimizerState, kLoadTheSame);
  for (size_t group = 0; group < options.size(); ++group)
    set_values(optimizer.param_groups()[group].options(), options[group]);
  optimizer.state().clear();
  for (auto& [parameter, loaded] : states)
    optimizer.state()[parameter] = std::move(loaded);
}

}  // namespace fsdp
