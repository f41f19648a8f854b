#include <ATen/EmptyTensor.h>
#include <c10/util/ScopeExit.h>
#include <comm/call_observer.h>
#include <comm/check_tensors.h>
#include <comm/communicator.h>
#include <comm/communicator_state.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

// Runs `body`, which issues a collective or waits for one. If a call has failed before, throws the
// error of that call again instead, because after the first failure the ranks' calls no longer
// match, and another wait would only delay the report. Throws std::logic_error if another thread
// runs attempt() on this Communicator at the same time.
template <class Body>
void attempt(CommunicatorState& comm, const Body& body) {
  if (comm.busy.exchange(true)) {
    throw std::logic_error("rank " + std::to_string(comm.global_rank) +
                           ": two threads use one Communicator at the same time; create one for "
                           "each thread, on all ranks in the same order");
  }
  const auto leave = c10::make_scope_exit([&] { comm.busy = false; });
  if (comm.failure) std::rethrow_exception(comm.failure);
  try {
    body();
  } catch (...) {
    comm.failure = std::current_exception();
    throw;
  }
}

// Counts the call that is about to be made. Returns whether CommunicatorOptions::fault skips the
// call. If the fault kills this rank before this call, does not return.
bool leaves_out_next_call(CommunicatorState& comm) {
  const uint64_t call = comm.ranks.ledger->count_call();
  if (!comm.fault || comm.fault->rank != comm.global_rank || comm.fault->at != call) return false;
  if (comm.fault->kind == Fault::Kind::kill) raise(SIGKILL);
  return true;
}

// Publishes the call. If it is to be compared, compares it with the calls that other ranks have
// published already.
void publish(const IssuedCall& issued) {
  Connection& connection = *issued.connection;
  const PublishedCall published{issued.call, issued.comm->clock->now(), issued.transfer->address()};
  if (issued.compared) {
    connection.ledger->publish(published);
  } else {
    connection.ledger->publish_unchecked(published);
  }
  ++connection.sequence;
  if (issued.compared) connection.ledger->compare(issued.call.sequence);
}

void finish(IssuedCall& issued);

// Returns this rank's next call in the group of `connection`, as the other ranks will see it.
Call next_call(const CommunicatorState& comm, const Connection& connection,
               const TensorsOfCall& given) {
  const Group& group = connection.group();
  Call call;
  call.sequence = connection.sequence;
  call.level = group.level;
  call.operation = given.operation;
  call.root = group.world_rank(given.root);
  call.unit = UnitName(given.unit);
  call.caller = CallerScope::current();
  call.communicator = static_cast<uint8_t>(group.communicator);
  if (comm.device == c10::kCPU) call.thread = gettid() - getpid();
  if (given.output.defined()) {
    call.dtype = given.input.scalar_type();
    call.numel = std::max(given.output.numel(), given.input.numel());
  }
  call.bytes = textbook_bytes(call, group.size);
  return call;
}

// Issues the collective: checks its tensors, completes the oldest call if 64 are pending, publishes
// the call, and starts the transfer. Returns null if CommunicatorOptions::fault skips the call.
std::shared_ptr<IssuedCall> issue(const std::shared_ptr<CommunicatorState>& comm,
                                  Connection& connection, const TensorsOfCall& given) {
  check_tensors(given, connection.group().size, comm->device, comm->global_rank);
  std::weak_ptr<IssuedCall>& latest = connection.latest[connection.sequence % Ledger::kRing];
  if (const auto oldest = latest.lock()) finish(*oldest);
  if (leaves_out_next_call(*comm)) return nullptr;
  const Call call = next_call(*comm, connection, given);
  // A barrier moves no bytes: waiting until every rank has published the call, which the comparison
  // does, is the barrier. So a barrier is always compared.
  const bool compared = comm->compares(connection) || given.operation == Operation::barrier;
  const auto issued =
      std::make_shared<IssuedCall>(IssuedCall{comm, &connection, call, compared, nullptr});
  attempt(*comm, [&] {
    issued->transfer = connection.transport->begin({call, given.output, given.input});
    publish(*issued);
    issued->transfer->start();
  });
  latest = issued;
  if (comm->keep_log) comm->log.push_back(call);
  call_observers::issued(call, given.output);
  return issued;
}

void complete(IssuedCall& issued) {
  attempt(*issued.comm, [&] {
    call_observers::waits(issued.call);
    if (issued.compared) issued.connection->ledger->check(issued.call.sequence);
    issued.transfer->complete();
    if (!CallObserver::all.empty()) call_observers::waited(issued.call, issued.transfer->moved());
  });
  issued.transfer.reset();
}

void finish(IssuedCall& issued) {
  if (issued.complete) return;
  complete(issued);
  // The reduce-scatter has ended, so the all-reduce over the replicas may use its output.
  if (issued.of_replicas.defined()) {
    const at::Tensor& sum = issued.of_replicas;
    Handle(issue(issued.comm, *issued.comm->replicas,
                 {Operation::all_reduce, sum, sum, 0, issued.call.unit.str()}))
        .wait();
    issued.of_replicas.reset();
  }
  issued.complete = true;
}

}  // namespace

bool Handle::pending() const {
  return call_ && !call_->done;
}

void Handle::wait() {
  if (!pending()) return;
  finish(*call_);
  call_->done = true;
}

int Communicator::rank() const {
  return ranks_->ledger->rank();
}
int Communicator::world_size() const {
  return ranks_->group().size;
}
int Communicator::global_rank() const {
  return state_->global_rank;
}
int Communicator::data_parallel_size() const {
  const bool over_replicas = state_->replicas && ranks_ == &state_->ranks;
  return world_size() * (over_replicas ? state_->replicas->group().size : 1);
}
const std::string& Communicator::backend() const {
  return ranks_->backend;
}
c10::DeviceType Communicator::device() const {
  return state_->device;
}

Handle Communicator::all_gather_into(const at::Tensor& output, const at::Tensor& input,
                                     const std::string& unit) {
  return Handle(issue(state_, *ranks_, {Operation::all_gather, output, input, 0, unit}));
}

Handle Communicator::reduce_scatter_into(const at::Tensor& output, const at::Tensor& input,
                                         const std::string& unit) {
  const auto issued = issue(state_, *ranks_, {Operation::reduce_scatter, output, input, 0, unit});
  if (issued && data_parallel_size() > world_size()) issued->of_replicas = output;
  return Handle(issued);
}

Handle Communicator::all_reduce(const at::Tensor& tensor, const std::string& unit) {
  return Handle(issue(state_, *ranks_, {Operation::all_reduce, tensor, tensor, 0, unit}));
}

Handle Communicator::broadcast(const at::Tensor& tensor, int root, const std::string& unit) {
  return Handle(issue(state_, *ranks_, {Operation::broadcast, tensor, tensor, root, unit}));
}

Handle Communicator::barrier(const std::string& unit) {
  return Handle(issue(state_, *ranks_, {Operation::barrier, at::Tensor(), at::Tensor(), 0, unit}));
}

at::Tensor Communicator::empty(int64_t numel, at::ScalarType dtype) const {
  const auto key = c10::computeDispatchKey(dtype, at::kStrided, state_->device);
  return at::detail::empty_generic({numel}, ranks_->transport->allocator(),
                                   c10::DispatchKeySet(key), dtype, std::nullopt);
}

void Communicator::end_first_iteration() {
  if (!state_->in_first_iteration) return;
  // Later calls, which are not compared, overwrite the records of the first iteration's calls. So
  // this rank waits until every rank has completed, and therefore compared, the calls of the first
  // iteration.
  for (const Connection* connection : state_->connections()) {
    if (connection->compare != Compare::first_iteration || connection->sequence == 0) continue;
    attempt(*state_,
            [&] { connection->ledger->wait_for_all(connection->sequence - 1, Stage::waited_for); });
  }
  state_->in_first_iteration = false;
}

void Communicator::wait_for_readers() {
  if (!has_readers_) return;
  // First completes this rank's pending all-gathers, so that this rank no longer reads the inputs
  // of other ranks. Otherwise every rank would wait here for other ranks that wait here too.
  for (const Connection* connection : state_->connections())
    for (const auto& latest : connection->latest)
      if (const auto one = latest.lock(); one && one->call.operation == Operation::all_gather)
        finish(*one);
  attempt(*state_, [&] {
    for (const Connection* connection : state_->connections())
      connection->transport->wait_for_readers();
  });
}

std::shared_ptr<Communicator> Communicator::assuming_no_readers() const {
  std::shared_ptr<Communicator> same(new Communicator(state_, *ranks_));
  same->has_readers_ = false;
  return same;
}

std::shared_ptr<Communicator> Communicator::replicas() const {
  if (data_parallel_size() == world_size()) return nullptr;
  return std::shared_ptr<Communicator>(new Communicator(state_, *state_->replicas));
}

std::vector<Call> Communicator::take_log() {
  if (!state_->keep_log)
    throw std::logic_error("take_log(): no log is kept; set CommunicatorOptions::keep_log");
  return std::exchange(state_->log, {});
}

}  // namespace fsdp
