#include <nn/module.h>
#include <wrap_marked.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <vector>

namespace fsdp {
namespace {

// A module that fully_shard(module) has marked has a Mark. The Mark is true if the policy of
// wrap_marked() has chosen the module as a unit. The module's forward pre-hook owns the Mark.
using Mark = std::atomic<bool>;

// The marks that fully_shard(module) has set on any thread, because one thread may mark a module
// and another one shard the model. A destroyed module leaves an expired mark, which a new module at
// the same address replaces.
class Marks {
 public:
  // Marks `module` and returns its Mark. Returns null if the module has a mark already.
  std::shared_ptr<Mark> add(const Module& module) {
    const std::scoped_lock lock(mutex_);
    std::weak_ptr<Mark>& mark = marks_[&module];
    if (!mark.expired()) return nullptr;
    const auto added = std::make_shared<Mark>(false);
    mark = added;
    return added;
  }

  // Returns the Mark of `module`, or null if the module has no mark.
  std::shared_ptr<Mark> find(const Module* module) {
    const std::scoped_lock lock(mutex_);
    const auto found = marks_.find(module);
    return found == marks_.end() ? nullptr : found->second.lock();
  }

 private:
  std::mutex mutex_;
  std::map<const Module*, std::weak_ptr<Mark>> marks_;
};

Marks& marks() {
  // `all`, the list of the marks, is never destroyed, because a static object may hold a marked
  // module until the process ends.
  static auto& all = *new Marks;
  return all;
}

}  // namespace

void fully_shard(Module& module) {
  const auto chosen = marks().add(module);
  if (!chosen) return;
  module.register_forward_pre_hook([chosen](Module& called, const at::Tensor&) {
    if (*chosen) return at::Tensor();
    throw std::logic_error(called.name() +
                           ": fully_shard(module) has marked it as a unit of a model that is not "
                           "sharded; shard the model first, with .wrap = wrap_marked()");
  });
}

WrapPolicy wrap_marked() {
  return [](Module& root) {
    std::vector<Module*> units;
    for (const auto& module : root.modules(/*include_self=*/false)) {
      auto* marked = dynamic_cast<Module*>(module.get());
      const auto chosen = marks().find(marked);
      if (!chosen) continue;
      *chosen = true;
      units.push_back(marked);
    }
    return units;
  };
}

}  // namespace fsdp
