#include <flat_parameter.h>
#include <memory/live_bytes.h>
#include <memory/poison.h>
#include <memory/reclassify.h>
#include <memory/storage.h>
#include <meta_init.h>

#include <algorithm>
#include <iterator>
#include <ranges>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

at::Tensor readable_by_others(const Communicator& comm, int64_t numel, MemoryClass cls,
                              at::ScalarType dtype = at::kFloat) {
  const MemoryScope scope(cls);
  return comm.empty(numel, dtype);
}

// For destructors: the error of a collective reaches the caller by the next call.
void wait_quietly(Handle& handle) noexcept {
  try {
    handle.wait();
  } catch (...) {
  }
}

// Neighbouring elements of a unit.
struct Interval {
  int64_t begin, end;

  bool empty() const { return begin >= end; }
  Interval common(Interval other) const {
    return {std::max(begin, other.begin), std::min(end, other.end)};
  }
  // These elements of a flat tensor that begins where `whole` does.
  at::Tensor of(const at::Tensor& flat, Interval whole) const {
    return flat.slice(0, begin - whole.begin, end - whole.begin);
  }
};

// A flat tensor, cut into the parameters' parts and the gaps after each of them.
class Parts {
 public:
  Parts(const at::Tensor& flat, const FlatLayout& layout,
        const std::vector<NamedParameter>& parameters) {
    std::vector<int64_t> lengths;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const int64_t next =
          i + 1 < layout.offsets.size() ? layout.offsets[i + 1] : layout.padded_numel;
      lengths.push_back(parameters[i].tensor.numel());
      lengths.push_back(next - layout.offsets[i] - lengths.back());
    }
    views_ = flat.split_with_sizes(lengths);
  }

  at::Tensor parameter(size_t index) const { return views_[2 * index]; }
  at::Tensor gap(size_t index) const { return views_[2 * index + 1]; }

 private:
  std::vector<at::Tensor> views_;
};

}  // namespace

FlatParameter::Bytes::Bytes(c10::Storage storage, int64_t bytes) : storage_(std::move(storage)) {
  const MemoryScope scope(MemoryClass::gathered);
  resize_storage(storage_, bytes);
}

FlatParameter::Bytes::~Bytes() {
  resize_storage(storage_, 0);
}

FlatParameter::Gathered::Gathered(const at::Tensor& flat, const at::Tensor& shard,
                                  Communicator& comm, const std::string& unit)
    : bytes_(flat.storage(), static_cast<int64_t>(flat.nbytes())),
      all_gather_(comm.all_gather_into(flat, shard, unit)) {}

FlatParameter::Gathered::~Gathered() {
  wait_quietly(all_gather_);
}

FlatParameter::Reduction::Reduction(at::Tensor flat_gradient, at::Tensor sum, Communicator& comm,
                                    const std::string& unit)
    : flat_gradient_(std::move(flat_gradient)),
      sum_(std::move(sum)),
      reduce_scatter_(comm.reduce_scatter_into(sum_, flat_gradient_, unit)) {}

FlatParameter::Reduction::~Reduction() {
  wait_quietly(reduce_scatter_);
}

at::Tensor FlatParameter::Reduction::sum() {
  reduce_scatter_.wait();
  flat_gradient_.reset();
  return sum_;
}

FlatParameter::FlatParameter(std::string unit, std::vector<NamedParameter> parameters,
                             std::shared_ptr<Communicator> comm, const Materialize& materialize)
    : unit_(std::move(unit)), parameters_(std::move(parameters)), comm_(std::move(comm)) {
  check_fp32(unit_, parameters_);
  std::vector<int64_t> numels;
  std::ranges::transform(parameters_, std::back_inserter(numels),
                         [](const NamedParameter& parameter) { return parameter.tensor.numel(); });
  layout_ = flat_layout(numels, comm_->world_size());
  shard_ =
      readable_by_others(*comm_, layout_.padded_numel / comm_->world_size(), MemoryClass::shards);
  shard_.fill_(poison::padding());
  const c10::Storage storage = storage_of_no_bytes(comm_->device());
  flat_ = view_of_storage(storage, 0, {layout_.padded_numel});
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& tensor = parameters_[i].tensor;
    keep_own_elements(tensor, layout_.offsets[i], materialize);
    assign_data(tensor, view_of_storage(storage, layout_.offsets[i], tensor.sizes()));
  }
}

void FlatParameter::keep_own_elements(const at::Tensor& parameter, int64_t offset,
                                      const Materialize& materialize) {
  const at::NoGradGuard no_grad;
  const Interval whole{offset, offset + parameter.numel()};
  const Interval shard{shard_offset(), shard_offset() + shard_numel()};
  const Interval own = whole.common(shard);
  if (own.empty()) return;
  const at::Tensor values = materialize ? materialize(parameter) : parameter;
  own.of(shard_, shard).copy_(own.of(values.detach().reshape(-1), whole));
}

bool FlatParameter::trainable() const {
  return std::ranges::any_of(parameters_, [](const NamedParameter& parameter) {
    return parameter.tensor.requires_grad();
  });
}

// Nobody reads the copy any more when it changes: whoever changed the shard had to wait for that.
const at::Tensor& FlatParameter::what_is_gathered() {
  if (!rounded_shard_.defined()) return shard_;
  const at::NoGradGuard no_grad;
  return rounded_shard_.copy_(shard_);
}

// The flat tensor has a version counter of its own. So autograd does not see that the parameters
// are written, which is right: they get the values that they had.
void FlatParameter::unshard_async() {
  if (gathered_) return;
  gathered_ = std::make_unique<Gathered>(flat_, what_is_gathered(), *comm_, unit_);
  state_ = UnitState::gathering;
}

void FlatParameter::unshard() {
  unshard_async();
  gathered_->wait();
  state_ = UnitState::unsharded;
}

void FlatParameter::reshard() {
  const auto gathered = std::move(gathered_);  // is freed here, also if the all-gather failed
  state_ = UnitState::sharded;
  if (gathered) gathered->wait();
}

void FlatParameter::collect_gradient(size_t index) {
  const at::Tensor& gradient = parameters_[index].tensor.grad();
  if (!gradient.defined()) return;
  if (gradient.has_storage()) {
    live_bytes::reclassify(gradient.storage().data_ptr(), MemoryClass::gradients);
  }
  collected_.insert(index);
}

bool FlatParameter::has_gradient() const {
  return !collected_.empty();
}

at::Tensor FlatParameter::move_gradients() {
  const at::NoGradGuard no_grad;
  at::Tensor flat = readable_by_others(*comm_, layout_.padded_numel, MemoryClass::gradients,
                                       precision_.reduce_dtype);
  const Parts parts(flat, layout_, parameters_);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& tensor = parameters_[i].tensor;
    parts.gap(i).zero_();
    if (!collected_.contains(i)) {
      parts.parameter(i).zero_();
      continue;
    }
    const at::Tensor gradient = std::exchange(tensor.mutable_grad(), at::Tensor());
    parts.parameter(i)
        .view(tensor.sizes())
        .copy_(gradient.is_sparse() ? gradient.to_dense() : gradient);
  }
  collected_.clear();
  return flat;
}

void FlatParameter::reduce_gradient() {
  wait_for_reduction();
  at::Tensor flat_gradient = move_gradients();
  reduction_ = std::make_unique<Reduction>(
      std::move(flat_gradient),
      readable_by_others(*comm_, shard_numel(), MemoryClass::sharded_gradients), *comm_, unit_);
}

void FlatParameter::wait_for_reduction() {
  const auto reduction = std::move(reduction_);
  if (!reduction) return;
  const at::NoGradGuard no_grad;
  const at::Tensor mean = reduction->sum();
  // A divisor on the device: by a number, CUDA would multiply with its rounded reciprocal.
  mean.div_(at::full({}, gradient_divide_factor(), mean.options()));
  if (sharded_gradient_.defined()) {
    sharded_gradient_.add_(mean);
  } else {
    sharded_gradient_ = mean;
  }
}

void FlatParameter::abandon_gradient() {
  collected_.clear();
  for (const NamedParameter& parameter : parameters_)
    parameter.tensor.mutable_grad().reset();
  const auto reduction = std::move(reduction_);
  if (reduction) reduction->sum();
}

}  // namespace fsdp
