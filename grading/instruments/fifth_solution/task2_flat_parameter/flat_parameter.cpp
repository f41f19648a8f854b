#include <c10/util/ScopeExit.h>
#include <c10/util/irange.h>
#include <flat_parameter.h>
#include <memory/live_bytes.h>
#include <memory/poison.h>
#include <memory/reclassify.h>
#include <memory/storage.h>
#include <meta_init.h>

#include <algorithm>
#include <utility>

namespace fsdp {
namespace {

// [begin, end), counted in the elements of a flat tensor.
struct Interval {
  int64_t begin, end;

  bool empty() const { return begin >= end; }
  Interval common_with(const Interval& other) const {
    return {std::max(begin, other.begin), std::min(end, other.end)};
  }
  at::Tensor in(const at::Tensor& tensor, int64_t first) const {  // tensor[0] is element `first`
    return tensor.slice(0, begin - first, end - first);
  }
};

at::Tensor shared_tensor(const Communicator& comm, MemoryClass cls, int64_t numel,
                         at::ScalarType dtype = at::kFloat) {
  const MemoryScope counted(cls);
  return comm.empty(numel, dtype);
}

}  // namespace

FlatParameter::FlatParameter(std::string unit, std::vector<NamedParameter> parameters,
                             std::shared_ptr<Communicator> comm, const Materialize& materialize)
    : unit_(std::move(unit)), parameters_(std::move(parameters)), comm_(std::move(comm)) {
  check_fp32(unit_, parameters_);
  const at::NoGradGuard no_grad;
  layout_ = flat_layout(numel_of_each(parameters_), comm_->world_size());
  shard_ = shared_tensor(*comm_, MemoryClass::shards, layout_.padded_numel / comm_->world_size());
  shard_.fill_(poison::padding());
  memory_ = storage_of_no_bytes(comm_->device());
  flat_ = view_of_storage(memory_, 0, {layout_.padded_numel});

  const Interval mine{shard_offset(), shard_offset() + shard_numel()};
  for (const auto i : c10::irange(parameters_.size())) {
    const at::Tensor& parameter = parameters_[i].tensor;
    const int64_t offset = layout_.offsets[i];
    const Interval part = mine.common_with({offset, offset + parameter.numel()});
    if (!part.empty()) {
      const at::Tensor values = materialize ? materialize(parameter) : parameter;
      part.in(shard_, mine.begin).copy_(part.in(values.detach().reshape({-1}), offset));
    }
    assign_data(parameter, view_of_storage(memory_, offset, parameter.sizes()));
  }
}

bool FlatParameter::trainable() const {
  return std::ranges::any_of(
      parameters_, [](const NamedParameter& named) { return named.tensor.requires_grad(); });
}

void FlatParameter::unshard_async() {
  if (state_ != UnitState::sharded) return;
  const MemoryScope counted(MemoryClass::gathered);
  auto undo = c10::make_scope_exit([&] { resize_storage(memory_, 0); });
  resize_storage(memory_, static_cast<int64_t>(flat_.nbytes()));
  if (rounded_.defined()) rounded_.copy_(shard_);
  // The values are those that autograd has saved: the version of the parameters must not change.
  gathering_ =
      comm_->all_gather_into(flat_.variable_data(), rounded_.defined() ? rounded_ : shard_, unit_);
  undo.release();
  state_ = UnitState::gathering;
}

void FlatParameter::unshard() {
  unshard_async();
  gathering_.wait();
  state_ = UnitState::unsharded;
}

void FlatParameter::reshard() {
  gathering_.wait();
  if (std::exchange(state_, UnitState::sharded) != UnitState::sharded) resize_storage(memory_, 0);
}

void FlatParameter::collect_gradient(size_t index) {
  const at::Tensor& gradient = parameters_.at(index).tensor.grad();
  live_bytes::reclassify(gradient.storage().data_ptr(), MemoryClass::gradients);
  collected_.insert(index);
}

bool FlatParameter::has_gradient() const {
  return !collected_.empty();
}

void FlatParameter::reduce_gradient() {
  wait_for_reduction();
  const at::NoGradGuard no_grad;
  const at::Tensor flat =
      shared_tensor(*comm_, MemoryClass::gradients, layout_.padded_numel, precision_.reduce_dtype);
  int64_t written = 0;  // elements from the beginning on
  const auto zeros_up_to = [&](int64_t end) { flat.slice(0, written, end).zero_(); };
  for (const size_t i : std::exchange(collected_, {})) {  // in the order of their offsets
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    zeros_up_to(layout_.offsets[i]);
    written = layout_.offsets[i] + gradient.numel();
    flat.slice(0, layout_.offsets[i], written).view(gradient.sizes()).copy_(gradient);
    gradient.reset();  // so that only one gradient is there twice
  }
  zeros_up_to(layout_.padded_numel);

  const at::Tensor sum = shared_tensor(*comm_, MemoryClass::sharded_gradients, shard_numel());
  reduction_ = Reduction{comm_->reduce_scatter_into(sum, flat, unit_), flat, sum};
}

void FlatParameter::wait_for_reduction() {
  if (!reduction_) return;
  reduction_->handle.wait();
  const at::NoGradGuard no_grad;
  const at::Tensor sum = std::exchange(reduction_, std::nullopt)->sum;
  sum.div_(gradient_divide_factor());
  if (sharded_gradient_.defined())
    sharded_gradient_.add_(sum);
  else
    sharded_gradient_ = sum;
}

void FlatParameter::abandon_gradient() {
  const auto drop = c10::make_scope_exit([&] {
    reduction_.reset();
    collected_.clear();
    for (const NamedParameter& named : parameters_)
      named.tensor.mutable_grad().reset();
  });
  if (reduction_) reduction_->handle.wait();
}

}  // namespace fsdp
