#include <same_on_all_ranks.h>
#include <sharding.h>
#include <state/agreement.h>
#include <state/whole_tensors.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>

// The state of torch's optimizers is known by what they write into an archive: a tensor of the
// parameter's shape for each moment, and whole numbers.
namespace fsdp {
namespace {

using torch::optim::Optimizer;
using Values = std::map<std::string, c10::IValue>;

std::unique_ptr<torch::optim::OptimizerParamState> new_state(const Optimizer& optimizer) {
  using namespace torch::optim;
  if (dynamic_cast<const AdamW*>(&optimizer)) return std::make_unique<AdamWParamState>();
  if (dynamic_cast<const Adam*>(&optimizer)) return std::make_unique<AdamParamState>();
  if (dynamic_cast<const SGD*>(&optimizer)) return std::make_unique<SGDParamState>();
  if (dynamic_cast<const RMSprop*>(&optimizer)) return std::make_unique<RMSpropParamState>();
  if (dynamic_cast<const Adagrad*>(&optimizer)) return std::make_unique<AdagradParamState>();
  throw std::invalid_argument(
      "optim_state_dict: the state of AdamW, Adam, SGD, RMSprop and Adagrad is known, and this is "
      "another optimizer");
}

template <class Part>
std::string archived(const Part& part) {
  torch::serialize::OutputArchive archive;
  part.serialize(archive);
  std::ostringstream text;
  archive.save_to(text);
  return text.str();
}

template <class Part>
void restore(const std::string& text, Part& part) {
  std::istringstream stream(text);
  torch::serialize::InputArchive archive;
  archive.load_from(stream);
  part.serialize(archive);
}

Values values_of(const torch::optim::OptimizerParamState& state) {
  std::istringstream stream(archived(state));
  torch::serialize::InputArchive archive;
  archive.load_from(stream);
  Values values;
  for (const std::string& key : archive.keys())
    archive.read(key, values[key]);
  return values;
}

std::string key_of_group(size_t group) {
  return "param_groups/" + std::to_string(group) + "/options";
}

// The index of each of the optimizer's tensors among the entries, by group.
std::vector<std::vector<size_t>> entries_of(Optimizer& optimizer, const ShardTensors& tensors) {
  std::vector<std::vector<size_t>> indices;
  for (const auto& group : optimizer.param_groups()) {
    auto& of_group = indices.emplace_back();
    for (const at::Tensor& parameter : group.params()) {
      const auto found = std::ranges::find_if(
          tensors.entries(), [&](const auto& entry) { return entry.own.is_same(parameter); });
      if (found == tensors.entries().end()) {
        throw std::invalid_argument(
            "optim_state_dict: the optimizer holds a tensor that is none of model.parameters()");
      }
      of_group.push_back(static_cast<size_t>(found - tensors.entries().begin()));
    }
  }
  return indices;
}

// "exp_avg step=3": what a rank has of a parameter, but for the elements.
std::string shape_of(const Values& values, const ShardTensors::Entry& entry) {
  std::string text;
  for (const auto& [key, value] : values) {
    text += (text.empty() ? "" : " ") + key;
    if (value.isInt()) {
      text += "=" + std::to_string(value.toInt());
    } else if (!value.isTensor() || value.toTensor().sizes() != entry.own.sizes()) {
      throw std::invalid_argument("optim_state_dict: " + entry.name + "/" + key +
                                  " is no tensor of the parameter's shape");
    }
  }
  return text;
}

// Collective. The states of all entries, by "NAME/KEY", whole.
std::map<std::string, at::Tensor> gather_states(const Sharding& sharding,
                                                const std::map<size_t, Values>& own) {
  Communicator& comm = sharding.comm();
  const auto& entries = sharding.tensors().entries();
  std::map<std::string, at::Tensor> whole;
  for (size_t unit = 0; unit < sharding.sharded().units().size(); ++unit) {
    const FlatParameter& flat_parameter = *sharding.sharded().units()[unit];
    std::map<std::string, at::Tensor> shards;  // by key: [padded / W]
    for (const auto& [index, values] : own) {
      const auto& entry = entries[index];
      if (entry.unit != unit) continue;
      for (const auto& [key, value] : values) {
        if (value.isInt()) {
          whole[entry.name + "/" + key] = at::scalar_tensor(value.toInt(), at::kLong);
          continue;
        }
        at::Tensor& shard = shards[key];
        if (!shard.defined()) shard = comm.empty(flat_parameter.shard_numel()).zero_();
        shard.narrow(0, entry.offset, entry.own.numel()).copy_(value.toTensor());
      }
    }
    for (const auto& [key, shard] : shards) {
      const at::Tensor flat = gather_flat(comm, shard, flat_parameter.unit());
      for (const auto& [index, values] : own)
        if (entries[index].unit == unit && values.contains(key))
          whole[entries[index].name + "/" + key] =
              cut_out(flat, entries[index].flat, entries[index].whole.sizes());
    }
  }
  comm.wait_for_readers();
  return whole;
}

// What `state` has of the entry, as values of this rank. Adds the names to `known`.
Values values_in(const StateDict& state, const ShardTensors::Entry& entry,
                 std::set<std::string>& known) {
  const std::string prefix = entry.name + "/";
  Values values;
  for (const auto& item : state) {
    if (!item.key().starts_with(prefix)) continue;
    known.insert(item.key());
    const at::Tensor& whole = item.value();
    c10::IValue& value = values[item.key().substr(prefix.size())];
    if (whole.dim() == 0 && whole.scalar_type() == at::kLong) {
      value = whole.item<int64_t>();
    } else if (whole.sizes() == entry.whole.sizes()) {
      const at::Tensor own = whole.flatten().narrow(0, entry.begin, entry.own.numel());
      value = own.to(entry.own.device()).clone();
    } else {
      throw std::invalid_argument("load_optim_state_dict: " + item.key() + " is " +
                                  dtype_and_sizes(whole) + ", and the parameter is " +
                                  dtype_and_sizes(entry.whole));
    }
  }
  return values;
}

void set_values(torch::optim::OptimizerParamState& state, const Values& values) {
  torch::serialize::OutputArchive archive;
  for (const auto& [key, value] : values)
    archive.write(key, value);
  std::ostringstream text;
  archive.save_to(text);
  restore(text.str(), state);
}

}  // namespace

StateDict ShardedModel::optim_state_dict(Optimizer& optimizer) {
  const Purpose purpose("optim_state_dict()");
  sharding_->begin("optim_state_dict");
  const auto& entries = sharding_->tensors().entries();
  new_state(optimizer);  // throws unless it is one of those
  StateDict state;
  std::map<size_t, Values> own;  // by entry
  std::vector<Trait> traits;
  const auto groups = entries_of(optimizer, sharding_->tensors());
  for (size_t group = 0; group < groups.size(); ++group) {
    const std::string options = archived(optimizer.param_groups()[group].options());
    state.insert(key_of_group(group),
                 at::tensor(std::vector<uint8_t>(options.begin(), options.end()), at::kByte));
    for (const size_t index : groups[group]) {
      const auto found = optimizer.state().find(entries[index].own.unsafeGetTensorImpl());
      if (found == optimizer.state().end()) continue;
      own[index] = values_of(*found->second);
      traits.push_back({"the optimizer's state of " + entries[index].name,
                        shape_of(own[index], entries[index])});
    }
  }
  check_same_on_all_ranks(sharding_->comm(), traits, "optim_state_dict",
                          "every rank has to make the same steps");
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : gather_states(*sharding_, own))
    state.insert(name, tensor);
  return state;
}

void ShardedModel::load_optim_state_dict(Optimizer& optimizer, const StateDict& state) {
  const Purpose purpose("load_optim_state_dict()");
  sharding_->begin("load_optim_state_dict");
  const auto& entries = sharding_->tensors().entries();
  const auto groups = entries_of(optimizer, sharding_->tensors());
  std::map<void*, std::unique_ptr<torch::optim::OptimizerParamState>> states;
  agree_on(sharding_->comm(), [&] {
    std::set<std::string> known;
    for (size_t group = 0; group < groups.size(); ++group) {
      if (!state.contains(key_of_group(group)))
        throw std::invalid_argument("load_optim_state_dict: lacks " + key_of_group(group) +
                                    "; make the optimizer with the groups that were saved");
      known.insert(key_of_group(group));
      for (const size_t index : groups[group]) {
        const Values values = values_in(state, entries[index], known);
        if (values.empty()) continue;
        auto& loaded = states[entries[index].own.unsafeGetTensorImpl()] = new_state(optimizer);
        set_values(*loaded, values);
      }
    }
    for (const auto& item : state)
      if (!known.contains(item.key()))
        throw std::invalid_argument("load_optim_state_dict: the optimizer has no " + item.key());
    return std::string();
  });
  for (size_t group = 0; group < groups.size(); ++group) {
    const at::Tensor bytes = state.at(key_of_group(group)).contiguous();
    restore(std::string(static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()),
            optimizer.param_groups()[group].options());
  }
  optimizer.state().clear();
  for (auto& [parameter, loaded] : states)
    optimizer.state()[parameter] = std::move(loaded);
}

}  // namespace fsdp
