#pragma once

#include <ATen/core/Tensor.h>
#include <comm/call.h>

#include <optional>
#include <utility>
#include <vector>

namespace fsdp {

// Is called for every collective of this process while it lives, in the order of these functions.
// Of several observers, the one that was made first is called first.
class CallObserver {
 public:
  using Moved = std::optional<std::pair<int64_t, int64_t>>;

  CallObserver() { all.push_back(this); }
  CallObserver(const CallObserver&) = delete;
  CallObserver& operator=(const CallObserver&) = delete;

  virtual void issued(const Call& call, const at::Tensor& output) = 0;

  // Its wait begins.
  virtual void waits(const Call& call) = 0;

  // Its wait returns, which it does not after a failure. `moved`: [ns] from when to when its bytes
  // moved, if the transport knows.
  virtual void waited(const Call& call, Moved moved) = 0;

  inline static std::vector<CallObserver*> all;  // of this process

 protected:
  ~CallObserver() { std::erase(all, this); }
};

// For a Communicator: calls all observers.
namespace call_observers {

inline void issued(const Call& call, const at::Tensor& output) {
  for (CallObserver* one : CallObserver::all)
    one->issued(call, output);
}

inline void waits(const Call& call) {
  for (CallObserver* one : CallObserver::all)
    one->waits(call);
}

inline void waited(const Call& call, CallObserver::Moved moved) {
  for (CallObserver* one : CallObserver::all)
    one->waited(call, moved);
}

}  // namespace call_observers
}  // namespace fsdp
