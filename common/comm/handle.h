#pragma once

#include <memory>
#include <utility>

namespace fsdp {

struct IssuedCall;

// A collective that has been issued. Every handle must be waited for.
class [[nodiscard]] Handle {
 public:
  Handle() = default;  // a Handle without a call, whose wait() returns at once
  explicit Handle(std::shared_ptr<IssuedCall> call) : call_(std::move(call)) {}

  // Returns when the output is complete. Over nccl it can return earlier: work that is queued on
  // the current stream from now on runs after the output is complete. A second wait() returns at
  // once. Throws CollectiveError if the ranks called different collectives, if a rank has ended or
  // has not arrived within the timeout, or if the library that moves the bytes has failed. Once a
  // call of a communicator has failed, waiting for any of its calls throws the same error at once.
  void wait();

  bool pending() const;  // whether the call was issued and wait() has not returned yet

 private:
  std::shared_ptr<IssuedCall> call_;
};

}  // namespace fsdp
