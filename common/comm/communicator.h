#pragma once

#include <base/torch.h>
#include <comm/call.h>
#include <comm/handle.h>

#include <memory>
#include <string>
#include <vector>

namespace fsdp {

struct CommunicatorOptions;
struct CommunicatorState;
struct Connection;
struct RankContext;

// The collectives between W ranks. All ranks call the same collectives in the same order, each with
// the name of the unit it serves; every call is compared with the other ranks' calls. A call
// returns at once, and its tensors belong to it until wait(). If 64 calls are not waited for, the
// next one first completes the oldest, whose wait() then returns at once. One thread calls at a
// time. Sums over ranks are taken as the tree of tree_sum.h, so a result has the same bits over
// every transport on the CPU; NCCL sums in an order of its own. After a call has failed, every
// function that calls or waits throws the same error at once.
class Communicator {
 public:
  // A rank may have eight at once, and models share one or have their own: all ranks create and
  // destroy theirs in the same order. Throws std::logic_error if there are more. Throws
  // std::invalid_argument if the backend is unknown or unavailable, or if not every call over shm
  // or a simulated link is to be compared: both read what the comparison brings.
  // Defined in transports/create_communicator.cpp.
  static std::shared_ptr<Communicator> create(const RankContext& context,
                                              const CommunicatorOptions& options);
  static std::shared_ptr<Communicator> create(const RankContext& context);  // by default options
  // The same for replicas of a model, which are sharded over `shard_size` neighbours each: rank =
  // replica * shard_size + shard. Every function is about the ranks of one replica, with one
  // exception: reduce_scatter_into sums over all ranks. The wait() of its handle also makes an
  // all_reduce of the output between the ranks that hold the same shard. Throws
  // std::invalid_argument too if shard_size does not divide the world.
  static std::shared_ptr<Communicator> create_hybrid(const RankContext& context,
                                                     const CommunicatorOptions& options,
                                                     int shard_size);
  Communicator(const Communicator&) = delete;  // it owns the connections to the other ranks
  int rank() const;
  int world_size() const;   // W
  int global_rank() const;  // among all ranks, with replicas
  int data_parallel_size()
      const;  // over how many ranks reduce_scatter_into sums: W without replicas
  const std::string& backend() const;  // between these ranks; never "auto"
  c10::DeviceType device() const;      // of the tensors

  // output [W n] <- the W inputs [n], in rank order. The input may be a part of the output. The
  // other ranks read an input made by empty() in place: it may be freed at once, but changed only
  // after wait_for_readers(), or after a later collective has shown that they have waited for this
  // one (the unit's reduce-scatter does).
  Handle all_gather_into(const at::Tensor& output, const at::Tensor& input,
                         const std::string& unit);

  // Completes this rank's all-gathers, then returns when the other ranks have waited for every one
  // of which they read this rank's input in place. No collective. Throws CollectiveError, which
  // names a rank that does not come.
  void wait_for_readers();
  // The same communicator for a caller that knows that nobody reads what it changes: its
  // wait_for_readers() does nothing.
  std::shared_ptr<Communicator> assuming_no_readers() const;

  // The collectives between the ranks that hold the same shard: there rank() is the number of the
  // replica. Null if there is one replica. All ranks call it and this communicator in one order.
  std::shared_ptr<Communicator> replicas() const;

  // output [n] <- the sum over ranks of part `rank` of their inputs [W n]: over the ranks of a
  // replica, then over replicas. The output may be fp32 and the input bf16 or fp16, which are then
  // what is sent; all is added in fp32 (NCCL adds the ranks of a replica in the input's dtype).
  Handle reduce_scatter_into(const at::Tensor& output, const at::Tensor& input,
                             const std::string& unit);
  // tensor <- the sum over ranks of tensor; tensor <- rank `root`'s tensor.
  Handle all_reduce(const at::Tensor& tensor, const std::string& unit);
  Handle broadcast(const at::Tensor& tensor, int root, const std::string& unit);
  Handle barrier(const std::string& unit);  // its wait() returns when every rank has called it

  // A contiguous tensor of undefined values, in memory that the transport reads without a copy.
  at::Tensor empty(int64_t numel, at::ScalarType dtype = at::kFloat) const;
  // All ranks must call it when they have waited for every call of the first iteration.
  void end_first_iteration();
  // The calls since the last take_log(), in the order of issue. Throws std::logic_error if
  // CommunicatorOptions::keep_log is off.
  std::vector<Call> take_log();

 private:
  Communicator(std::shared_ptr<CommunicatorState> state, Connection& ranks)
      : state_(std::move(state)), ranks_(&ranks) {}
  std::shared_ptr<CommunicatorState> state_;  // shared with the handles
  Connection* ranks_;                         // of it, whose collectives these are
  bool has_readers_{true};
};

}  // namespace fsdp
