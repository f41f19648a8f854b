#pragma once

#include <ATen/core/Tensor.h>
#include <comm/call.h>

#include <optional>
#include <utility>
#include <vector>

namespace fsdp {

// Observes every collective of this process. For each collective, Communicator calls issued(), then
// waits(), then waited(). Observers are called in the order of their construction.
class CallObserver {
 public:
  using Moved = std::optional<std::pair<int64_t, int64_t>>;

  CallObserver() { all.push_back(this); }
  CallObserver(const CallObserver&) = delete;
  CallObserver& operator=(const CallObserver&) = delete;

  virtual void issued(const Call& call, const at::Tensor& output) = 0;

  // Called when this rank begins to wait for `call`.
  virtual void waits(const Call& call) = 0;

  // Called when this rank has waited for `call`; not called if the call fails. `moved`: [ns] start
  // and end of the transfer, if the transport knows them.
  virtual void waited(const Call& call, Moved moved) = 0;

  // All observers of this process, in the order of their construction.
  inline static std::vector<CallObserver*> all;

 protected:
  ~CallObserver() { std::erase(all, this); }
};

// Communicator calls these functions. Each calls the function of the same name of every observer.
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
