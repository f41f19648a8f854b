#include <ddp.h>
#include <memory/memory_class.h>
#include <memory/storage.h>
#include <nn/gradient_hook.h>

#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <stdexcept>

namespace fsdp {

// all_reduce_gradients() reduces one gradient after another, and gives each parameter a new tensor
// in .grad.
void all_reduce_gradients(const std::vector<NamedParameter>& parameters, Communicator& comm) {
  at::NoGradGuard no_grad;
  for (const auto& [name, parameter] : parameters) {
    if (!parameter.requires_grad()) continue;
    at::Tensor sum = comm.empty(parameter.numel()).view(parameter.sizes()).zero_();
    if (parameter.grad().defined()) sum.copy_(parameter.grad());
    comm.all_reduce(sum, name).wait();
    parameter.mutable_grad() = sum / comm.world_size();
  }
}

namespace {

// An implementation of BucketReducer that keeps, for each bucket, the set of the gradients that the
// bucket waits for, and that keeps the pending all-reduces in a queue.
class Buckets final : public BucketReducer {
 public:
  Buckets(const std::vector<std::vector<int64_t>>& shapes, BucketSizes sizes,
          std::shared_ptr<Communicator> comm)
      : shapes_(shapes), comm_(comm) {
    std::vector<int64_t> numels;
    for (const auto& shape : shapes)
      numels.push_back(
          std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()));
    plan_ = gradient_buckets(numels, sizes);
  }

  void begin(std::vector<at::Tensor> buckets) override {
    settle();
    own_ = buckets.empty();
    tensors_ = std::move(buckets);
    tensors_.resize(plan_.numels.size());
    waits_for_.assign(plan_.numels.size(), {});
    for (size_t i = 0; i < shapes_.size(); ++i)
      waits_for_[plan_.places[i].bucket].insert(i);
    next_ = 0;
  }

  at::Tensor place(size_t index) override {
    const auto where = plan_.places.at(index);
    at::Tensor& whole = tensor(where.bucket);
    return view_of_storage(whole.storage(), where.offset + whole.storage_offset(), shapes_[index]);
  }

  void ready(size_t index) override {
    if (waits_for_[plan_.places.at(index).bucket].erase(index) == 0)
      throw std::logic_error("ready(" + std::to_string(index) + ") was called before");
    for (; next_ < waits_for_.size() && waits_for_[next_].empty(); ++next_)
      send(next_);
  }

  std::vector<at::Tensor> finish() override {
    for (; next_ < waits_for_.size(); ++next_) {
      if (own_)
        for (const size_t index : waits_for_[next_])
          place(index).zero_();
      send(next_);
    }
    settle();
    return std::exchange(tensors_, {});
  }

 private:
  at::Tensor& tensor(size_t bucket) {
    at::Tensor& whole = tensors_[bucket];
    if (!whole.defined()) {
      MemoryScope gradients(MemoryClass::gradients);
      whole = comm_->empty(plan_.numels[bucket]);
    }
    return whole;
  }
  void send(size_t bucket) {
    pending_.push_back(comm_->all_reduce(tensor(bucket), "bucket." + std::to_string(bucket)));
  }
  void settle() {
    for (; !pending_.empty(); pending_.pop_front())
      pending_.front().wait();
  }

  std::vector<std::vector<int64_t>> shapes_;
  std::shared_ptr<Communicator> comm_;
  GradientBuckets plan_;
  // Says whether this object allocates the buckets. It does not if the caller has passed them to
  // begin().
  bool own_{};
  // The flat tensor of each bucket; undefined if the bucket has no memory yet.
  std::vector<at::Tensor> tensors_;
  // For each bucket, the indices of those of its gradients that are not ready in this pass.
  std::vector<std::set<size_t>> waits_for_;
  std::deque<Handle> pending_;
  size_t next_{};  // index of the bucket whose all-reduce is issued next
};

// An implementation of DataParallel that begins a pass when the first gradient of the pass arrives,
// and keeps the places of the pass's gradients in their buckets.
class Replica final : public DataParallel {
 public:
  Replica(Module& model, const std::shared_ptr<Communicator>& comm, BucketSizes sizes)
      : ranks_(comm->world_size()) {
    std::vector<std::vector<int64_t>> shapes;
    for (const auto& parameter : distinct_parameters(model)) {
      if (!parameter.tensor.requires_grad()) continue;
      shapes.push_back(parameter.tensor.sizes().vec());
      parameters_.push_back(parameter);
    }
    buckets_ = make_bucket_reducer(shapes, sizes, comm);
    for (size_t i = 0; i < parameters_.size(); ++i)
      removers_.push_back(
          register_post_accumulate_grad_hook(parameters_[i].tensor, [this, i] { arrive(i); }));
  }
  ~Replica() override {
    for (auto& remove : removers_)
      remove();
  }

  void finish() override {
    at::NoGradGuard no_grad;
    begin();
    for (size_t i = 0; i < parameters_.size(); ++i)
      places_.try_emplace(i, buckets_->place(i));
    for (const at::Tensor& sum : buckets_->finish())
      sum.div_(ranks_);
    for (auto& [i, place] : places_)
      parameters_[i].tensor.mutable_grad() = std::move(place);
    places_.clear();
    begun_ = false;
  }

 private:
  void begin() {
    if (!begun_) buckets_->begin();
    begun_ = true;
  }
  void arrive(size_t i) {
    at::NoGradGuard no_grad;
    begin();
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    const auto [place, is_first] = places_.try_emplace(i, buckets_->place(i));
    if (!is_first)
      throw std::logic_error("two gradients of " + parameters_[i].name + " before finish()");
    place->second.copy_(std::exchange(gradient, {}));
    buckets_->ready(i);
  }

  std::vector<NamedParameter> parameters_;
  int ranks_;
  std::unique_ptr<BucketReducer> buckets_;
  // For each parameter whose gradient has arrived in this pass, the place of the gradient in its
  // bucket.
  std::map<size_t, at::Tensor> places_;
  std::vector<std::function<void()>> removers_;
  bool begun_{};
};

}  // namespace

std::unique_ptr<BucketReducer> make_bucket_reducer(const std::vector<std::vector<int64_t>>& shapes,
                                                   BucketSizes sizes,
                                                   std::shared_ptr<Communicator> comm) {
  return std::make_unique<Buckets>(shapes, sizes, std::move(comm));
}

std::unique_ptr<DataParallel> make_data_parallel(Module& model, std::shared_ptr<Communicator> comm,
                                                 BucketSizes sizes) {
  return std::make_unique<Replica>(model, comm, sizes);
}

}  // namespace fsdp
