#include <base/todo.h>
#include <prefetch.h>

#include <algorithm>
#include <stdexcept>

namespace fsdp {

class PrefetcherImpl final : public Prefetcher,
                             public std::enable_shared_from_this<PrefetcherImpl> {
 public:
  explicit PrefetcherImpl(int limit) { PrefetcherImpl::set_limit(limit); }

  void set_limit(int limit) override;
  void add_root(Module& root) override;
  void add(Module& module, std::shared_ptr<FlatParameter> unit) override;
  void end_backward() override { backward_order_.clear(); }
  const std::vector<std::shared_ptr<FlatParameter>>& forward_order() const override {
    return forward_order_;
  }

 private:
  using Order = std::vector<std::shared_ptr<FlatParameter>>;

  void begin_forward();  // called when the root has been unsharded for its forward
  // Called when `unit` has been unsharded for its forward.
  void pre_forward(const std::shared_ptr<FlatParameter>& unit);
  void end_forward();  // called when the root's forward has ended
  // Called when `unit` has been unsharded for its backward.
  void pre_backward(const std::shared_ptr<FlatParameter>& unit);

  size_t window_{};       // how many units are issued ahead of the running unit
  Order forward_order_;   // units of the forward under way, or else of the last forward
  Order backward_order_;  // units whose forward has ended and that will come back in backward

  // Add what you need.
};

void PrefetcherImpl::set_limit(int limit) {
  if (limit < 1) throw std::invalid_argument("prefetch: limit must be at least 1");
  window_ = static_cast<size_t>(limit - 1);
}

void PrefetcherImpl::add_root(Module& root) {
  todo("Prefetcher::add_root", "6.1");
}

void PrefetcherImpl::add(Module& module, std::shared_ptr<FlatParameter> unit) {
  todo("Prefetcher::add", "6.1");
}

void PrefetcherImpl::begin_forward() {
  todo("Prefetcher::begin_forward", "6.1");
}

void PrefetcherImpl::pre_forward(const std::shared_ptr<FlatParameter>& unit) {
  todo("Prefetcher::pre_forward", "6.1");
}

void PrefetcherImpl::end_forward() {
  todo("Prefetcher::end_forward", "6.1");
}

void PrefetcherImpl::pre_backward(const std::shared_ptr<FlatParameter>& unit) {
  todo("Prefetcher::pre_backward", "6.3");
}

std::shared_ptr<Prefetcher> make_prefetcher(int limit) {
  return std::make_shared<PrefetcherImpl>(limit);
}

}  // namespace fsdp
