#pragma once

#include <memory>
#include <utility>

namespace fsdp {

struct IssuedCall;

// A collective that has been issued. Every handle must be waited for.
class [[nodiscard]] Handle {
 public:
  Handle() = default;  // has no call: wait() returns at once
  explicit Handle(std::shared_ptr<IssuedCall> call) : call_(std::move(call)) {}

  // Returns when the output is complete; over nccl, when all that is queued on the current stream
  // from now on will find it complete. A second wait() returns at once. Throws CollectiveError if
  // the ranks called different collectives, if a rank has ended, or if a rank has not arrived
  // within the timeout. Once a call of a communicator has failed, waiting for any of its calls
  // throws the same error at once.
  void wait();

  bool pending() const;  // issued, and no wait() has returned yet

 private:
  std::shared_ptr<IssuedCall> call_;
};

}  // namespace fsdp
