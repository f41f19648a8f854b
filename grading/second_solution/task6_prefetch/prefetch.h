#pragma once

#include <flat_parameter.h>
#include <nn/module.h>

#include <deque>
#include <map>
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
  void set_modules_to_forward_prefetch(Module& module, const std::vector<Module*>& modules);
  void set_modules_to_backward_prefetch(Module& module, const std::vector<Module*>& modules);

  const std::vector<std::shared_ptr<FlatParameter>>& forward_order() const { return order_; }

 private:
  using Queue = std::deque<std::shared_ptr<FlatParameter>>;
  struct Direction {
    Queue coming;
    std::map<FlatParameter*, Queue> lists;  // in place of what comes, by the running unit
  };
  void issue_ahead(const Queue& coming) const;
  void advance(Direction& direction, const std::shared_ptr<FlatParameter>& unit) const;
  void set(Direction& direction, Module& module, const std::vector<Module*>& modules) const;

  int limit_{};
  std::map<Module*, std::shared_ptr<FlatParameter>> unit_of_;
  std::vector<std::shared_ptr<FlatParameter>> order_;  // of the forward under way, or the last one
  Direction forward_;                                  // as the last forward went on
  Direction backward_;                                 // ended in forward, the latest first
};

}  // namespace fsdp
