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

// The collectives between W ranks.
// - All ranks call the same collectives in the same order, each with the name of the unit that it
//   serves. Ranks compare their calls (CommunicatorOptions::compare).
// - A call returns at once. Its tensors belong to the call until wait() returns.
// - At most 64 calls are pending: the next one first completes the oldest, whose wait() then
//   returns at once.
// - Only one thread at a time may call.
// - Sums over ranks are taken in the order of tree_sum.h, so a result has the same bits over every
//   transport on the CPU. NCCL sums in its own order.
// - After a call has failed, every function that issues or waits throws the same error at once.
class Communicator {
 public:
  // Collective. A rank may have eight Communicators at a time; models may share one. All ranks
  // create and destroy theirs in the same order. Defined in transports/create_communicator.cpp.
  // Throws
  // - std::logic_error for a ninth Communicator;
  // - std::invalid_argument if the backend is unknown or unavailable, or if `options` leave out
  //   comparisons of forked ranks over shm, or of any ranks over a simulated link: shm and the link
  //   read data that the comparison exchanges;
  // - CollectiveError if the other ranks cannot be connected within the time limit.
  static std::shared_ptr<Communicator> create(const RankContext& context,
                                              const CommunicatorOptions& options);
  // Creates a Communicator with default CommunicatorOptions.
  static std::shared_ptr<Communicator> create(const RankContext& context);
  // Creates a Communicator as create() does, but for replicas of a model, each sharded over
  // `shard_size` neighbouring ranks: rank = replica * shard_size + shard.
  // - Every function works on the ranks of one replica, except that reduce_scatter_into() sums over
  //   all ranks: wait() of its handle also all-reduces the output between the ranks that hold the
  //   same shard.
  // - Throws what create() throws, and std::invalid_argument if shard_size does not divide the
  //   number of ranks, or if several replicas have a simulated link.
  static std::shared_ptr<Communicator> create_hybrid(const RankContext& context,
                                                     const CommunicatorOptions& options,
                                                     int shard_size);
  // A Communicator cannot be copied, because it owns the connections to the other ranks.
  Communicator(const Communicator&) = delete;
  int rank() const;         // this rank's number in the group
  int world_size() const;   // W: the number of ranks of the group
  int global_rank() const;  // this rank's number among the ranks of all replicas
  // Returns over how many ranks reduce_scatter_into() sums: W, or all ranks if there are replicas.
  int data_parallel_size() const;
  const std::string& backend() const;  // the backend of the group: shm, gloo or nccl, never "auto"
  c10::DeviceType device() const;      // the device of all tensors of the collectives

  // All-gather: output [W n] <- the inputs [n] of the W ranks, in the order of ranks. The input may
  // be a part of the output. If the input was made by empty(), the other ranks may read it in place
  // (with shm and tensors on the CPU, they do). The caller may free it at once, but may change it
  // only after wait_for_readers(), or after a later collective that shows that all ranks have
  // waited for this all-gather, such as the unit's reduce-scatter.
  Handle all_gather_into(const at::Tensor& output, const at::Tensor& input,
                         const std::string& unit);

  // Completes this rank's all-gathers. Then waits for each rank that reads inputs of this rank in
  // place, until that rank has waited for every all-gather that reads them. Not a collective.
  // Throws CollectiveError, which names a rank that does not arrive.
  void wait_for_readers();
  // Returns this communicator with a wait_for_readers() that does nothing, for a caller that knows
  // that no rank reads the tensors which it is about to change.
  std::shared_ptr<Communicator> assuming_no_readers() const;

  // Returns the communicator between the ranks that hold the same shard, where rank() is the number
  // of the replica; null if there is one replica. All ranks must make their calls on this
  // communicator and on the returned one in the same order.
  std::shared_ptr<Communicator> replicas() const;

  // Reduce-scatter: output [n] <- the sum over ranks of part number rank() of their inputs [W n],
  // first over the ranks of a replica, then over the replicas. The input may be bf16 or fp16 and
  // the output fp32: then the narrow dtype is sent, and everything is added in fp32. (NCCL adds the
  // ranks of a replica in the input's dtype.)
  Handle reduce_scatter_into(const at::Tensor& output, const at::Tensor& input,
                             const std::string& unit);
  // All-reduce: `tensor` on every rank <- the sum of the tensors of all ranks.
  Handle all_reduce(const at::Tensor& tensor, const std::string& unit);
  // Broadcast: `tensor` on every rank <- the tensor of rank `root`.
  Handle broadcast(const at::Tensor& tensor, int root, const std::string& unit);
  // Barrier: wait() of the returned Handle returns when every rank has called barrier().
  Handle barrier(const std::string& unit);

  // Returns a contiguous tensor with undefined values, in memory of Transport::allocator(). With
  // the transport shm and tensors on the CPU, the other ranks read an input in this memory in
  // place.
  at::Tensor empty(int64_t numel, at::ScalarType dtype = at::kFloat) const;
  // Collective. Ends the first iteration: with Compare::first_iteration, later calls are not
  // compared. Call it when this rank has waited for every call of the first iteration.
  void end_first_iteration();
  // Returns the calls of this rank since the last take_log(), in the order of issue. Throws
  // std::logic_error if CommunicatorOptions::keep_log is off.
  std::vector<Call> take_log();

 private:
  Communicator(std::shared_ptr<CommunicatorState> state, Connection& ranks)
      : state_(std::move(state)), ranks_(&ranks) {}
  std::shared_ptr<CommunicatorState> state_;  // shared with the Handles of its calls
  Connection* ranks_;       // points into *state_: the connection to the group of this Communicator
  bool has_readers_{true};  // false: wait_for_readers() does nothing
};

}  // namespace fsdp
