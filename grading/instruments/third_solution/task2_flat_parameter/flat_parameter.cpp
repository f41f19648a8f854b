#include <flat_parameter.h>
#include <memory/poison.h>
#include <memory/reclassify.h>
#include <memory/storage.h>
#include <meta_init.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

constexpr std::array<std::pair<UnitState, UnitState>, 4> kTransitions{{
    {UnitState::sharded, UnitState::gathering},
    {UnitState::gathering, UnitState::unsharded},
    {UnitState::gathering, UnitState::sharded},
    {UnitState::unsharded, UnitState::sharded},
}};

std::vector<int64_t> numels_of(const std::vector<NamedParameter>& parameters) {
  std::vector<int64_t> numels;
  for (const auto& [name, tensor] : parameters)
    numels.push_back(tensor.numel());
  return numels;
}

}  // namespace

FlatParameter::FlatParameter(std::string unit, std::vector<NamedParameter> parameters,
                             std::shared_ptr<Communicator> comm, const Materialize& materialize)
    : unit_(std::move(unit)), parameters_(std::move(parameters)), comm_(std::move(comm)) {
  check_fp32(unit_, parameters_);
  const at::NoGradGuard no_grad;
  const std::vector<int64_t> numels = numels_of(parameters_);
  layout_ = flat_layout(numels, comm_->world_size());
  collected_.resize(parameters_.size());
  storage_ = storage_of_no_bytes(comm_->device());
  {
    const MemoryScope scope(MemoryClass::shards);
    shard_ = comm_->empty(layout_.padded_numel / comm_->world_size());
  }
  shard_.fill_(poison::padding());

  for (size_t i = 0; i < parameters_.size(); ++i) {
    ranges_.push_back({layout_.offsets[i], numels[i]});
    const at::Tensor& parameter = parameters_[i].tensor;
    const auto [offset, numel] = ranges_[i];
    const int64_t begin = std::max(offset, shard_offset());
    const int64_t end = std::min(offset + numel, shard_offset() + shard_numel());
    if (begin < end) {
      const at::Tensor values = (materialize ? materialize(parameter) : parameter).detach();
      shard_.slice(0, begin - shard_offset(), end - shard_offset())
          .copy_(values.reshape({-1}).slice(0, begin - offset, end - offset));
    }
    // At once, so that its old memory is freed before the next parameter is materialized.
    assign_data(parameter, view_of_storage(storage_, offset, parameter.sizes()));
  }
  flat_ = view_of_storage(storage_, 0, {layout_.padded_numel});
}

FlatParameter::~FlatParameter() {
  gather_ = Handle();
  resize_storage(storage_, 0);
}

void FlatParameter::enter(UnitState next) {
  if (std::ranges::find(kTransitions, std::pair(state_, next)) == kTransitions.end())
    throw std::logic_error("unit " + unit_ + ": makes a transition that no unit makes");
  state_ = next;
}

bool FlatParameter::trainable() const {
  return std::ranges::any_of(parameters_, [](const NamedParameter& parameter) {
    return parameter.tensor.requires_grad();
  });
}

void FlatParameter::unshard_async() {
  if (state_ != UnitState::sharded) return;
  const at::NoGradGuard no_grad;
  // The other ranks may still read the copy: they read the same values, unless the shard has been
  // changed, and who changes it waits for the readers first.
  if (rounded_.defined()) rounded_.copy_(shard_);
  {
    const MemoryScope scope(MemoryClass::gathered);
    resize_storage(storage_, layout_.padded_numel * precision_.param_bytes());
  }
  gather_ = comm_->all_gather_into(flat_, rounded_.defined() ? rounded_ : shard_, unit_);
  enter(UnitState::gathering);
}

void FlatParameter::unshard() {
  unshard_async();
  if (state_ != UnitState::gathering) return;
  gather_.wait();
  enter(UnitState::unsharded);
}

void FlatParameter::reshard() {
  if (state_ == UnitState::sharded) return;
  gather_.wait();  // returns at once unless an all-gather still writes
  resize_storage(storage_, 0);
  enter(UnitState::sharded);
}

void FlatParameter::require_flat_gradient() {
  if (flat_gradient_.defined()) return;
  const MemoryScope scope(MemoryClass::gradients);
  flat_gradient_ = comm_->empty(layout_.padded_numel, precision_.reduce_dtype).zero_();
}

at::Tensor FlatParameter::place(size_t index) {
  const auto [begin, numel] = ranges_[index];
  return flat_gradient_.narrow(0, begin, numel).view(parameters_[index].tensor.sizes());
}

void FlatParameter::collect_gradient(size_t index) {
  const at::NoGradGuard no_grad;
  collected_[index] = true;
  at::Tensor& gradient = parameters_[index].tensor.mutable_grad();
  if (gradient.scalar_type() != precision_.reduce_dtype) {
    // A view of the flat gradient would have another dtype than the parameter: it stays as it is.
    live_bytes::reclassify(gradient.storage().data_ptr(), MemoryClass::gradients);
    return;
  }
  require_flat_gradient();
  if (gradient.is_alias_of(flat_gradient_)) return;  // autograd has added to what was collected
  gradient = place(index).copy_(gradient);
}

bool FlatParameter::has_gradient() const {
  return std::ranges::find(collected_, true) != collected_.end();
}

void FlatParameter::reduce_gradient() {
  wait_for_reduction();
  const at::NoGradGuard no_grad;
  require_flat_gradient();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!collected_[i]) continue;
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    if (gradient.defined() && !gradient.is_alias_of(flat_gradient_)) place(i).copy_(gradient);
    gradient.reset();
    collected_[i] = false;
  }
  {
    const MemoryScope scope(MemoryClass::sharded_gradients);
    sum_ = comm_->empty(shard_numel());
  }
  reducing_ = std::exchange(flat_gradient_, at::Tensor());
  reduction_ = comm_->reduce_scatter_into(sum_, reducing_, unit_);
}

void FlatParameter::wait_for_reduction() {
  if (!sum_.defined()) return;
  reduction_.wait();
  reducing_.reset();
  const at::NoGradGuard no_grad;
  if (gradient_divide_factor() != 1) sum_.div_(gradient_divide_factor());
  if (sharded_gradient_.defined()) {
    sharded_gradient_.add_(sum_);
  } else {
    sharded_gradient_ = sum_;
  }
  sum_.reset();
}

void FlatParameter::abandon_gradient() {
  reduction_.wait();
  sum_.reset();
  reducing_.reset();
  flat_gradient_.reset();
  for (const auto& [name, parameter] : parameters_)
    parameter.mutable_grad().reset();
  collected_.assign(parameters_.size(), false);
}

}  // namespace fsdp
