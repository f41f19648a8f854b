#pragma once

#include <flat_parameter.h>

#include <set>

namespace fsdp {

class FlatParameterImpl final : public FlatParameter {
 public:
  FlatParameterImpl(std::string unit, std::vector<NamedParameter> parameters,
                    std::shared_ptr<Communicator> comm, const Materialize& materialize);
  ~FlatParameterImpl() override;

  bool trainable() const override;
  void unshard_async() override;
  void unshard() override;
  void reshard() override;
  void mark_gradient_ready(size_t index) override;
  bool has_gradient() const override;
  void reduce_gradient() override;
  void wait_for_reduction() override;
  void discard_unreduced_gradients() override;
  void set_mixed_precision(const MixedPrecisionPolicy& policy) override;
  void widen_gradients() override;

 private:
  void flatten_gradients();

  at::Tensor full_;             // [padded_numel], owned; storage of 0 bytes while sharded
  at::Tensor rounded_shard_;    // [padded_numel / W], owned, readable; undefined if nothing rounds
  at::Tensor gradient_;         // [padded_numel], owned, readable; being reduced
  at::Tensor reduced_;          // [padded_numel / W], owned; the reduce-scatter writes it
  std::set<size_t> collected_;  // parameters whose .grad waits for a reduction
  Handle gather_, reduction_;
};

}  // namespace fsdp
