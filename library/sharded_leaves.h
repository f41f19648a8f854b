#pragma once

#include <fully_shard.h>
#include <no_gradient_by_name.h>
#include <part_mark.h>

#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// One sharded parameter: the module's parameter (`whole`), and the leaf tensor that has the
// elements that this rank owns of it (`leaf`).
struct ShardedParameter {
  std::string name;
  at::Tensor whole;  // the module's parameter, a view of its unit's flat tensor
  size_t unit;       // index of the parameter's unit in FullySharded::units()
  int64_t flat;      // index of the parameter's first element in the unit's flat tensor
  int64_t begin;     // index of the first element of `leaf` in the parameter
  int64_t offset;    // index of the first element of `leaf` in this rank's shard of the unit
  // A view of the shard, with the shard's version counter: [1, ..., 1, n] with as many dimensions
  // as `whole`, but at least one. On one rank it has the sizes of `whole`.
  at::Tensor leaf;
  std::vector<int64_t> sizes;  // sizes of `leaf`
  // requires_grad of `whole` and of `leaf` after the last sync_requires_grad().
  bool requires_grad;
  // `part` and `part_of_gradient`: the descriptions with which `leaf` and its gradient are marked
  // as this rank's parts of larger tensors (part_mark.h); null if there is only one rank, which has
  // all elements.
  c10::intrusive_ptr<PartOf> part{}, part_of_gradient{};
  std::shared_ptr<NoGradientByName> no_gradient_by_name{};
};

// For each distinct parameter of a sharded model, a leaf tensor with the elements that this rank
// owns, for optimizers. To the user, the module's parameter and its leaf are one parameter.
// sharded_gradients.h describes .grad of the two.
class ShardedLeaves {
 public:
  // Makes a ShardedParameter for each distinct parameter, in the order of first registration.
  ShardedLeaves(const FullySharded& sharded, const std::shared_ptr<Communicator>& comm);
  ShardedLeaves(const ShardedLeaves&) = delete;

  const std::vector<ShardedParameter>& entries() const { return entries_; }

  // has_replaced_data() returns whether the user has given the leaf, or any leaf, other data with
  // set_data(). copy_data_to_shards() copies such data into the shards. It throws std::logic_error
  // if the data have another shape, dtype or device.
  bool has_replaced_data() const;
  bool has_replaced_data(const ShardedParameter& entry) const;
  void copy_data_to_shards();

  // Makes requires_grad of each parameter and of its leaf equal: if the user has changed it for one
  // of the two, changes it for the other one.
  void sync_requires_grad();
  // Returns requires_grad of each of entries(), as it was after the last sync_requires_grad().
  std::vector<bool> requires_grad() const;

 private:
  std::vector<std::shared_ptr<FlatParameter>> units_;
  std::vector<ShardedParameter> entries_;
};

}  // namespace fsdp
