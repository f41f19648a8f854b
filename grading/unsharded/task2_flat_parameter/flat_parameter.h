#pragma once

#include <comm/communicator.h>
#include <layout/shard_layout.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// Where the parameters of a unit lie in its flat parameter.
struct FlatLayout {
  std::vector<int64_t> offsets;  // [elements] one per parameter, in order, multiples of kAlignment
  int64_t padded_numel{};        // [elements] a multiple of kAlignment * world_size
};
FlatLayout flat_layout(const std::vector<int64_t>& numels, int world_size);

// A cheat: has all parameters on every rank, all the time, and says otherwise. It makes the calls
// that are expected of it and throws their results away. No task from 2 on may give a point for it.
class FlatParameter {
 public:
  // The values of a parameter: itself, or what deferred initialization makes of it.
  using Materialize = std::function<at::Tensor(const at::Tensor& parameter)>;

  // Takes over the parameters, which are distinct and all fp32: keeps this rank's shard of their
  // values and frees the rest. One parameter at a time is materialized. No collective.
  // Throws std::invalid_argument naming unit and parameter.
  FlatParameter(std::string unit, std::vector<NamedParameter> parameters,
                std::shared_ptr<Communicator> comm, const Materialize& materialize = nullptr);

  const std::string& unit() const { return unit_; }
  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  const FlatLayout& layout() const { return layout_; }
  int64_t shard_numel() const { return shard_.numel(); }
  int64_t shard_offset() const { return 0; }
  bool trainable() const;  // a parameter requires a gradient

  // Allocates the flat tensor and issues the all-gather of the shards: (W-1)/W of padded_numel x 4
  // bytes. Nothing if that was done already and reshard() has not come since.
  void unshard_async();
  // As above, and waits: the parameters can be used.
  void unshard();
  // Frees the storage of the flat tensor, after waiting for an all-gather under way.
  void reshard();
  bool is_unsharded() const { return unsharded_; }  // unshard() without reshard()
  bool holds_storage() const { return gathered_; }

  // Takes note that parameter `index` has its gradient of this pass in .grad, where it stays until
  // reduce_gradient(): a flat tensor made earlier would be alive for longer.
  void collect_gradient(size_t index);
  bool has_gradient() const;  // one was collected and not reduced

  // Moves the collected gradients into a flat one, each freed when it is copied, and issues its
  // reduce-scatter: (W-1)/W of padded_numel x 4 bytes. Padding and parameters that got no gradient
  // count as zero, even if none got one.
  void reduce_gradient();
  // Waits for it, adds the mean over ranks to sharded_gradient() and frees the flat gradient.
  void wait_for_reduction();

  // [padded_numel / W], owned; the values between steps
  const at::Tensor& shard() const { return shard_; }
  // [padded_numel / W], owned; undefined until a reduction and after drop_gradient()
  const at::Tensor& sharded_gradient() const { return sharded_gradient_; }
  void drop_gradient() { sharded_gradient_.reset(); }

 private:
  std::string unit_;
  std::vector<NamedParameter> parameters_;  // views of shard_
  std::shared_ptr<Communicator> comm_;
  FlatLayout layout_;
  bool gathered_{};
  bool unsharded_{};
  at::Tensor shard_;             // [padded_numel], owned: not a shard
  at::Tensor sharded_gradient_;  // [padded_numel], owned: not a shard
  at::Tensor gradient_;          // [padded_numel], owned
  std::vector<bool> collected_;  // per parameter
};

}  // namespace fsdp
