#pragma once

#include <comm/clock.h>
#include <comm/launcher.h>
#include <comm/ledger.h>
#include <comm/link.h>
#include <torch/torch.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

class Transport;
class Transfer;

// A fault put in by hand: on `rank`, the call number `at` is left out, or the process killed.
struct Fault {
  enum class Kind { skip, kill };
  Kind kind;
  int rank;
  uint64_t at;
};

// Which calls are compared between ranks. A rank that waits for a compared call waits until the
// others have made it too; the transports of the CPU wait for that in any case, NCCL does not.
enum class Compare { always, first_iteration, never };

struct CommunicatorOptions {
  // auto, shm, gloo or nccl. auto: on CUDA nccl if every rank has a GPU of its own; else shm
  // between forked ranks and gloo between others, on CUDA through copies on the host.
  std::string backend{"auto"};
  std::chrono::milliseconds timeout{300'000};  // of every wait
  std::optional<Fault> fault{};
  std::optional<Link> link{};  // simulated, on top of the backend
  std::shared_ptr<Clock> clock{monotonic_clock()};
  c10::DeviceType device{c10::kCPU};  // of all tensors; of CUDA, the GPU that is the current device
  std::optional<Compare> compare{};   // by default the first iteration over nccl, else always
};

// Labels of collectives that serve no unit. Their bytes are counted under keys of their own.
inline const std::string kInit = "<init>";
inline const std::string kNorm = "<norm>";
inline const std::string kMetrics = "<metrics>";

// One entry of the log: what was called, for which unit, and the bytes this rank receives by the
// textbook count (W ranks, B bytes of the larger tensor): all-gather and reduce-scatter (W-1)/W B,
// all-reduce 2(W-1)/W B with B rounded up to W elements, broadcast (W-1)/W B, barrier 0.
struct LoggedCall {
  uint64_t sequence;
  Operation operation;
  std::string unit;
  int64_t bytes;
};

// A collective that has been issued. Every handle has to be waited for; a second wait does nothing.
class Handle {
 public:
  Handle() = default;
  // Returns when the output is complete; over nccl, when what the current stream does next will
  // find it so. Throws CollectiveError when the ranks called different collectives, or when one of
  // them has not come within the timeout.
  void wait();
  bool pending() const;  // issued and not waited for yet

 private:
  friend class Communicator;
  struct Call;
  explicit Handle(std::shared_ptr<Call> call) : call_(std::move(call)) {}
  std::shared_ptr<Call> call_;
};

// The collectives between W ranks. All ranks call the same collectives in the same order, each with
// the name of the unit it serves; what one rank calls is compared with the others' calls. A call
// returns at once and its tensors belong to it until wait(). Sums are taken in rank order, so that
// a result has the same bits on every transport on the CPU; NCCL has an order of its own.
class Communicator {
 public:
  // Throws std::invalid_argument for an unknown or unavailable backend, and for calls that are not
  // compared over shm or a simulated link, which read what the comparison brings.
  static std::shared_ptr<Communicator> create(const RankContext& context,
                                              const CommunicatorOptions& options = {});
  ~Communicator();

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  const std::string& backend() const { return backend_; }  // never "auto"
  c10::DeviceType device() const { return device_; }       // of the tensors

  // output [W n] <- the W inputs [n], in rank order. The input may be a part of the output.
  // An input made by empty() is read in place by the other ranks. It may be freed, but changed only
  // after wait_for_readers(), or after a later collective has shown that they have waited for this
  // one (the unit's reduce-scatter does).
  Handle all_gather_into(const at::Tensor& output, const at::Tensor& input,
                         const std::string& unit);

  // Returns when the other ranks have waited for every all-gather of which they read this rank's
  // input in place. No collective. Throws CollectiveError, naming a rank that does not come.
  void wait_for_readers();

  // output [n] <- sum over ranks of part `rank` of their inputs [W n].
  Handle reduce_scatter_into(const at::Tensor& output, const at::Tensor& input,
                             const std::string& unit);

  // tensor <- sum over ranks of tensor, in place.
  Handle all_reduce(const at::Tensor& tensor, const std::string& unit);

  // tensor <- rank `root`'s tensor.
  Handle broadcast(const at::Tensor& tensor, int root, const std::string& unit);

  // Its wait() returns when every rank has called it.
  Handle barrier(const std::string& unit);

  // A contiguous tensor of undefined values in memory that the transport reads without a copy.
  at::Tensor empty(int64_t numel, at::ScalarType dtype = at::kFloat) const;

  // To be called by all ranks when they have waited for every call of the first iteration.
  void end_first_iteration();

  // The calls since the last take_log(), in the order of issue.
  std::vector<LoggedCall> take_log();

 private:
  Communicator() = default;
  Handle issue(Operation operation, const at::Tensor& output, const at::Tensor& input, int root,
               const std::string& unit);

  int rank_{};
  int world_size_{};
  std::string backend_;
  c10::DeviceType device_{};
  Compare compare_{};
  bool comparing_{};
  std::optional<Fault> fault_;
  std::shared_ptr<Clock> clock_;
  uint64_t calls_{};     // made by this rank, skipped ones included
  uint64_t sequence_{};  // of the next call
  std::vector<LoggedCall> log_;
  std::shared_ptr<SharedRegion> shared_;
  std::shared_ptr<Ledger> ledger_;
  std::shared_ptr<Transport> transport_;
};

}  // namespace fsdp
