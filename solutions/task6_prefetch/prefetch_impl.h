#pragma once

#include <prefetch.h>

#include <map>

namespace fsdp {

class PrefetcherImpl final : public Prefetcher,
                             public std::enable_shared_from_this<PrefetcherImpl> {
 public:
  explicit PrefetcherImpl(int limit) { PrefetcherImpl::set_limit(limit); }

  void set_limit(int limit) override;
  void add_root(Module& root) override;
  void add(Module& module, std::shared_ptr<FlatParameter> unit) override;
  void end_backward() override;
  const std::vector<std::shared_ptr<FlatParameter>>& forward_order() const override {
    return forward_order_;
  }
  void set_modules_to_forward_prefetch(Module& module,
                                       const std::vector<Module*>& modules) override;
  void set_modules_to_backward_prefetch(Module& module,
                                        const std::vector<Module*>& modules) override;

 private:
  using Order = std::vector<std::shared_ptr<FlatParameter>>;
  using Lists = std::map<std::shared_ptr<FlatParameter>, Order>;

  void begin_forward();  // called when the root has been unsharded for its forward
  void pre_forward(const std::shared_ptr<FlatParameter>& unit);  // called when it is unsharded
  void end_forward();     // called when the root's forward has ended
  void forget_forward();  // called when the root's forward threw: its calls do not come back
  void pre_backward(const std::shared_ptr<FlatParameter>& unit);  // called when it is unsharded
  void set(Lists& lists, Module& module, const std::vector<Module*>& modules) const;
  static bool issue(const Lists& lists, const std::shared_ptr<FlatParameter>& unit);

  size_t window_{};       // how many units are issued ahead of the running unit
  Order last_order_;      // units of the forward before this one
  Order forward_order_;   // units of the forward under way, or else of the last forward
  Order backward_order_;  // units whose forward has ended and that will come back in backward
  size_t earlier_{};      // entries of backward_order_ from before the forward under way
  std::map<Module*, std::shared_ptr<FlatParameter>> units_;  // by the module given to add()
  Lists forward_lists_, backward_lists_;
};

}  // namespace fsdp
