#pragma once

#include <functional>
#include <utility>

namespace fsdp {

// A scope in which backward passes reduce nothing: this rank adds up whole gradients. The next
// backward pass after the scope reduces their sum. Scopes must not be nested. A scope can be moved,
// so a std::optional<NoSync> can hold it: it ends with the object that it was moved to last.
class [[nodiscard]] NoSync {
 public:
  explicit NoSync(std::function<void(bool sync)> set) : set_(std::move(set)) { set_(false); }
  ~NoSync() { end(); }
  NoSync(NoSync&& other) noexcept : set_(std::exchange(other.set_, nullptr)) {}
  // Move assignment of a NoSync first ends the no_sync() scope that this object already has, if
  // any.
  NoSync& operator=(NoSync&& other) noexcept {
    if (this == &other) return *this;
    end();
    set_ = std::exchange(other.set_, nullptr);
    // If both objects were scopes of the same model, end() has switched that model's reductions on,
    // although the scope of `other` goes on. set_(false) switches them off again.
    if (set_) set_(false);
    return *this;
  }

 private:
  void end() {
    if (set_) std::exchange(set_, nullptr)(true);
  }
  // Switches the reductions of the model on or off. Null: the scope has ended, or another object
  // has it now.
  std::function<void(bool sync)> set_;
};

}  // namespace fsdp
