#include <ddp.h>
#include <memory/memory_class.h>
#include <memory/storage.h>
#include <nn/gradient_hook.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

namespace fsdp {

void all_reduce_gradients(const std::vector<NamedParameter>& parameters, Communicator& comm) {
  const at::NoGradGuard no_grad;
  std::vector<std::pair<at::Tensor, Handle>> reductions;
  for (const auto& [name, parameter] : parameters) {
    if (!parameter.requires_grad()) continue;
    at::Tensor& gradient = parameter.mutable_grad();
    gradient = gradient.defined() ? gradient.contiguous() : at::zeros_like(parameter);
    reductions.emplace_back(gradient, comm.all_reduce(gradient, name));
  }
  for (auto& [gradient, reduction] : reductions) {
    reduction.wait();
    gradient.div_(comm.world_size());  // after the sum: 1 / W is not exact for every W
  }
}

namespace {

class BucketReducerImpl final : public BucketReducer {
 public:
  BucketReducerImpl(std::vector<std::vector<int64_t>> shapes, BucketSizes sizes,
                    std::shared_ptr<Communicator> comm)
      : shapes_(std::move(shapes)), comm_(std::move(comm)), ready_(shapes_.size()) {
    std::vector<int64_t> numels;
    for (const auto& shape : shapes_)
      numels.push_back(c10::multiply_integers(shape));
    layout_ = gradient_buckets(numels, sizes);
  }

  void begin(std::vector<at::Tensor> buckets) override {
    for (Bucket& bucket : buckets_)
      bucket.reduction.wait();
    fresh_ = buckets.empty();
    issued_ = 0;
    ready_.assign(shapes_.size(), false);
    buckets_.clear();
    buckets.resize(layout_.numels.size());
    for (at::Tensor& sum : buckets)
      buckets_.push_back({std::move(sum)});
    for (const auto& place : layout_.places)
      ++buckets_[place.bucket].missing;
  }

  at::Tensor place(size_t index) override {
    const auto& [bucket, offset] = layout_.places[index];
    const at::Tensor& sum = allocated(bucket);
    return view_of_storage(sum.storage(), sum.storage_offset() + offset, shapes_[index]);
  }

  void ready(size_t index) override {
    if (ready_[index])
      throw std::logic_error("gradient " + std::to_string(index) + " is ready already");
    ready_[index] = true;
    --buckets_[layout_.places[index].bucket].missing;
    // In the order of the buckets, whatever order they fill in: otherwise one rank's bucket 1 would
    // be added to another rank's bucket 0.
    while (issued_ < buckets_.size() && buckets_[issued_].missing == 0)
      issue_next();
  }

  std::vector<at::Tensor> finish() override {
    for (size_t i = 0; fresh_ && i < shapes_.size(); ++i)
      if (!ready_[i]) place(i).zero_();
    while (issued_ < buckets_.size())
      issue_next();
    std::vector<at::Tensor> sums;
    for (Bucket& bucket : buckets_) {
      bucket.reduction.wait();
      sums.push_back(std::move(bucket.sum));
    }
    buckets_.clear();
    return sums;
  }

 private:
  struct Bucket {
    at::Tensor sum;      // [numel], shared with the caller of begin() or finish()
    int64_t missing{};   // gradients that are not ready
    Handle reduction{};  // of `sum`, from its issue on
  };

  const at::Tensor& allocated(size_t index) {
    at::Tensor& sum = buckets_[index].sum;
    if (!sum.defined()) {
      const MemoryScope scope(MemoryClass::gradients);
      sum = comm_->empty(layout_.numels[index]);  // other ranks read it in place
    }
    return sum;
  }

  void issue_next() {
    Bucket& bucket = buckets_[issued_];
    bucket.reduction = comm_->all_reduce(allocated(issued_), "bucket." + std::to_string(issued_));
    ++issued_;
  }

  std::vector<std::vector<int64_t>> shapes_;  // of each gradient
  std::shared_ptr<Communicator> comm_;
  GradientBuckets layout_;
  // The members below describe the pass that has not ended.
  std::vector<Bucket> buckets_;
  std::vector<bool> ready_;  // by gradient
  bool fresh_{};             // this object allocates the buckets
  size_t issued_{};          // number of buckets whose all-reduce is issued: the first ones
};

std::vector<NamedParameter> trainable_parameters(const Module& model) {
  std::vector<NamedParameter> trainable;
  for (NamedParameter& parameter : distinct_parameters(model))
    if (parameter.tensor.requires_grad()) trainable.push_back(std::move(parameter));
  return trainable;
}

std::vector<std::vector<int64_t>> shapes_of(const std::vector<NamedParameter>& parameters) {
  std::vector<std::vector<int64_t>> shapes;
  for (const NamedParameter& parameter : parameters)
    shapes.push_back(parameter.tensor.sizes().vec());
  return shapes;
}

class DataParallelImpl final : public DataParallel {
 public:
  DataParallelImpl(Module& model, std::shared_ptr<Communicator> comm, BucketSizes sizes)
      : parameters_(trainable_parameters(model)),
        world_size_(comm->world_size()),
        reducer_(make_bucket_reducer(shapes_of(parameters_), sizes, std::move(comm))),
        moved_(parameters_.size()) {
    for (size_t i = 0; i < parameters_.size(); ++i)
      remove_hooks_.push_back(
          register_post_accumulate_grad_hook(parameters_[i].tensor, [this, i] { move(i); }));
    reducer_->begin();
  }
  ~DataParallelImpl() override {
    for (const auto& remove_hook : remove_hooks_)
      remove_hook();
  }

  void finish() override {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> places;
    for (size_t i = 0; i < parameters_.size(); ++i)
      places.push_back(reducer_->place(i));
    for (at::Tensor& bucket : reducer_->finish())
      bucket.div_(world_size_);  // once, after the sum
    for (size_t i = 0; i < parameters_.size(); ++i)
      parameters_[i].tensor.mutable_grad() = places[i];
    moved_.assign(parameters_.size(), false);
    reducer_->begin();
  }

 private:
  // Moves the gradient of parameter `index` into its bucket.
  void move(size_t index) {
    const auto& [name, parameter] = parameters_[index];
    if (moved_[index])
      throw std::logic_error("backward: the gradient of " + name +
                             " has been sent already; call finish() after each backward pass");
    moved_[index] = true;
    const at::NoGradGuard no_grad;
    reducer_->place(index).copy_(parameter.grad());
    parameter.mutable_grad().reset();
    reducer_->ready(index);
  }

  std::vector<NamedParameter> parameters_;  // shared with the model
  int world_size_;
  std::unique_ptr<BucketReducer> reducer_;
  std::vector<bool> moved_;                          // by parameter, in this pass
  std::vector<std::function<void()>> remove_hooks_;  // by parameter
};

}  // namespace

std::unique_ptr<BucketReducer> make_bucket_reducer(const std::vector<std::vector<int64_t>>& shapes,
                                                   BucketSizes sizes,
                                                   std::shared_ptr<Communicator> comm) {
  return std::make_unique<BucketReducerImpl>(shapes, sizes, std::move(comm));
}

std::unique_ptr<DataParallel> make_data_parallel(Module& model, std::shared_ptr<Communicator> comm,
                                                 BucketSizes sizes) {
  return std::make_unique<DataParallelImpl>(model, std::move(comm), sizes);
}

}  // namespace fsdp
