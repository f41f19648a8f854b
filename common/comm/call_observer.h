#pragma once

#include <ATen/core/Tensor.h>
#include <comm/call.h>

#include <optional>
#include <utility>

namespace fsdp {

// Is called for every collective of this process, in the order of these functions.
class CallObserver {
 public:
  CallObserver() = default;
  CallObserver(const CallObserver&) = delete;
  CallObserver& operator=(const CallObserver&) = delete;

  virtual void issued(const Call& call, const at::Tensor& output) = 0;

  // Its wait begins.
  virtual void waits(const Call& call) = 0;

  // Its wait returns, which it does not after a failure. `moved`: [ns] from when to when its bytes
  // moved, if the transport knows.
  virtual void waited(const Call& call, std::optional<std::pair<int64_t, int64_t>> moved) = 0;

 protected:
  ~CallObserver() = default;
};

// The observer of this process. There is at most one; null: none.
inline CallObserver* call_observer = nullptr;

}  // namespace fsdp
