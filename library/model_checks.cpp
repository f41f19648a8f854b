#include <buffers.h>
#include <ignored.h>
#include <memory/storage_guard.h>
#include <model_checks.h>
#include <replicated_model.h>
#include <wrap_policy.h>

#include <algorithm>
#include <set>
#include <stdexcept>

namespace fsdp {
namespace {

bool has_values(const at::Tensor& tensor) {
  return tensor.numel() > 0 && !tensor.is_meta() && tensor.has_storage() && !is_freed(tensor);
}

std::vector<NamedParameter> with_values(std::vector<NamedParameter> tensors) {
  std::erase_if(tensors, [](const NamedParameter& one) { return !has_values(one.tensor); });
  return tensors;
}

// The memory of a tensor in its storage: from its first element to the end of its last element.
struct Extent {
  const void* storage;
  // [bytes] The positions in the storage at which the tensor's memory begins and ends.
  int64_t begin, end;
  std::string name;

  Extent(std::string named, const at::Tensor& tensor)
      : storage(tensor.storage().unsafeGetStorageImpl()), name(std::move(named)) {
    int64_t last = 0;  // [elements] distance in memory from the tensor's first element to its last
    for (int64_t dim = 0; dim < tensor.dim(); ++dim)
      last += (tensor.size(dim) - 1) * tensor.stride(dim);
    begin = tensor.storage_offset() * tensor.element_size();
    end = begin + (last + 1) * tensor.element_size();
  }
  bool overlaps(const Extent& other) const {
    return storage == other.storage && begin < other.end && other.begin < end;
  }
};

void check_is_unsharded(const std::string& name, const at::Tensor& parameter) {
  const bool sharded = !parameter.is_meta() && is_freed(parameter);
  if (!sharded && !is_replicated(parameter)) return;
  throw std::invalid_argument("FullyShardedDataParallel: parameter " + name +
                              (sharded ? " is sharded" : " is replicated") +
                              " already; shard a model once, as a whole, or put the module that "
                              "has it into .ignored");
}

}  // namespace

std::vector<NamedParameter> distinct_buffers(const torch::nn::Module& module) {
  std::vector<NamedParameter> buffers;
  std::set<at::TensorImpl*> seen;
  for (const auto& buffer : module.named_buffers())
    if (buffer.value().defined() && seen.insert(buffer.value().unsafeGetTensorImpl()).second)
      buffers.push_back({buffer.key(), buffer.value()});
  return buffers;
}

void check_can_be_sharded(Module& net, const std::vector<torch::nn::Module*>& ignored) {
  std::set<at::TensorImpl*> of_units;
  for (const UnitPlan& unit : plan_units(net, wrap_none(), ignored))
    for (const auto& [name, parameter] : unit.parameters)
      of_units.insert(parameter.unsafeGetTensorImpl());
  // `extents` gets the memory of the parameters that will be sharded; `others` gets the memory of
  // the buffers and of the parameters that stay whole. Below, `others` is appended to `extents`,
  // and each extent is compared only with those of parameters that will be sharded. So two tensors
  // that stay whole may share memory.
  std::vector<Extent> extents, others;
  for (const auto& [name, parameter] : distinct_parameters(net)) {
    const bool stays_whole = !of_units.contains(parameter.unsafeGetTensorImpl());
    if (!stays_whole) check_is_unsharded(name, parameter);
    if (has_values(parameter))
      (stays_whole ? others : extents).emplace_back("parameter " + name, parameter);
  }
  for (const auto& [name, buffer] : distinct_buffers(net))
    if (has_values(buffer)) others.emplace_back("buffer " + name, buffer);
  extents.insert(extents.end(), others.begin(), others.end());
  const size_t sharded = extents.size() - others.size();
  for (size_t i = 0; i < extents.size(); ++i) {
    const auto end = extents.begin() + static_cast<int64_t>(std::min(i, sharded));
    const auto other = std::find_if(extents.begin(), end,
                                    [&](const Extent& one) { return one.overlaps(extents[i]); });
    if (other == end) continue;
    throw std::invalid_argument(
        "FullyShardedDataParallel: " + extents[i].name + " and " + other->name +
        " share memory and would be separate tensors afterwards; register one tensor "
        "under both names, or make the view in forward()");
  }
}

std::vector<NamedParameter> ignored_parameters(const torch::nn::Module& net,
                                               const FullySharded& sharded) {
  std::set<at::TensorImpl*> of_units;
  for (const auto& unit : sharded.units())
    for (const auto& [name, parameter] : unit->parameters())
      of_units.insert(parameter.unsafeGetTensorImpl());
  auto parameters = distinct_parameters(net);
  std::erase_if(parameters, [&](const NamedParameter& parameter) {
    return of_units.contains(parameter.tensor.unsafeGetTensorImpl());
  });
  return parameters;
}

void verify_model_across_ranks(Communicator& comm, const Module& net,
                               const std::vector<UnitPlan>& plan,
                               const std::vector<std::pair<std::string, std::string>>& options,
                               bool from_rank_0, const std::string& where) {
  const auto parameters = distinct_parameters(net), buffers = distinct_buffers(net);
  const std::string build = "build the same model on every rank";
  std::vector<RankInvariant> invariants;
  for (const auto& [name, parameter] : parameters) {
    invariants.push_back({"parameter " + name, dtype_and_sizes(parameter), build});
    invariants.push_back(
        {"parameter " + name, parameter.requires_grad() ? "trainable" : "frozen", kFreezeTheSame});
  }
  for (const auto& [name, buffer] : buffers)
    invariants.push_back({"buffer " + name, dtype_and_sizes(buffer), build});
  for (const UnitPlan& unit : plan) {
    std::string of_unit;
    for (const auto& parameter : unit.parameters)
      of_unit += (of_unit.empty() ? "" : " ") + parameter.name;
    invariants.push_back({"unit " + unit.name, of_unit, "choose the same units on every rank"});
  }
  for (const auto& [name, value] : options)
    invariants.push_back({name, value, "give every rank the same options"});
  if (!from_rank_0) {
    const std::string sync = ", or set .sync_module_states to start with those of rank 0";
    add_values(
        invariants, "parameter", with_values(parameters),
        "call the same torch::manual_seed() on every rank before you build the model" + sync);
    add_values(invariants, "buffer", with_values(buffers),
               "fill it with the same values on every rank" + sync);
  }
  check_same_on_all_ranks(comm, invariants, where);
  if (!from_rank_0) return;
  // `whole` gets the parameters that rank 0 broadcasts: all parameters except those of ignored
  // modules that another FullyShardedDataParallel has sharded.
  auto whole = parameters;
  std::erase_if(whole, [](const NamedParameter& one) { return is_freed(one.tensor); });
  broadcast_from_rank_0(comm, whole);
  broadcast_from_rank_0(comm, buffers);
}

}  // namespace fsdp
