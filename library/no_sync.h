#pragma once

#include <functional>
#include <utility>

namespace fsdp {

// A scope in which backward reduces nothing: gradients are added up, whole, on this rank. The next
// backward after it reduces their sum. Scopes may not be nested.
class [[nodiscard]] NoSync {
 public:
  explicit NoSync(std::function<void(bool sync)> set) : set_(std::move(set)) { set_(false); }
  ~NoSync() { set_(true); }
  NoSync(const NoSync&) = delete;

 private:
  std::function<void(bool sync)> set_;
};

}  // namespace fsdp
