#pragma once

#include <flat_parameter.h>
#include <nn/module.h>

#include <deque>
#include <memory>
#include <vector>

namespace fsdp {

// The contract is in tasks/. Here each direction has a queue of the units that should come; when
// one comes, those before it are passed over and the next ones issued.
class Prefetcher : public std::enable_shared_from_this<Prefetcher> {
 public:
  explicit Prefetcher(int limit);
  void set_limit(int limit);
  Prefetcher(const Prefetcher&) = delete;

  void add_root(Module& root);
  void add(Module& module, std::shared_ptr<FlatParameter> unit);
  void end_backward();

  const std::vector<std::shared_ptr<FlatParameter>>& forward_order() const { return order_; }

 private:
  using Queue = std::deque<std::shared_ptr<FlatParameter>>;
  void issue_ahead(const Queue& coming) const;
  void advance(Queue& coming, const std::shared_ptr<FlatParameter>& unit) const;

  int limit_{};
  std::vector<std::shared_ptr<FlatParameter>> order_;  // of the forward under way, or the last one
  Queue in_forward_;                                   // as the last forward went on
  Queue in_backward_;                                  // ended in forward, the latest first
};

}  // namespace fsdp
