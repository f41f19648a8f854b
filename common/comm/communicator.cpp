#include <ATen/EmptyTensor.h>
#include <c10/util/ScopeExit.h>
#include <comm/backends.h>
#include <comm/call_observer.h>
#include <comm/communicator.h>
#include <comm/recording.h>
#include <comm/remote_ledger.h>
#include <memory/storage.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <exception>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace fsdp {

// The calls of this rank in one group.
struct Connection {
  std::string backend;
  Compare compare{};
  std::shared_ptr<Ledger> ledger;
  std::shared_ptr<Transport> transport;
  uint64_t sequence{};  // of the next call
  // By sequence, modulo their number.
  std::array<std::weak_ptr<IssuedCall>, Ledger::kRing> latest{};

  const Group& group() const { return ledger->group(); }
};

struct CommunicatorState {
  CallRings::Place place{};
  std::shared_ptr<void> gives_place_back;  // destroyed last, when the transports are
  int global_rank{};
  c10::DeviceType device{};
  bool in_first_iteration{true};
  std::optional<Fault> fault;
  std::shared_ptr<Clock> clock;
  Connection ranks;                    // of the world, or of one replica
  std::optional<Connection> replicas;  // that hold the same shard; nothing if there is one
  bool keep_log{};
  std::vector<Call> log;
  std::exception_ptr failure;  // the first, if a call has failed
  std::atomic<bool> busy{};    // whether a thread calls or waits

  bool compares(const Connection& connection) const {
    return connection.compare == Compare::always ||
           (connection.compare == Compare::first_iteration && in_first_iteration);
  }

  std::vector<const Connection*> connections() const {
    if (!replicas) return {&ranks};
    return {&ranks, &*replicas};
  }

  // Does `body`, which calls or waits, unless that has failed before. After the first failure the
  // ranks' calls no longer match, and to wait again would only delay its report.
  template <class Body>
  void attempt(const Body& body) {
    if (busy.exchange(true)) {
      throw std::logic_error("rank " + std::to_string(global_rank) +
                             ": two threads use one Communicator at the same time; create one for "
                             "each thread, on all ranks in the same order");
    }
    const auto leave = c10::make_scope_exit([&] { busy = false; });
    if (failure) std::rethrow_exception(failure);
    try {
      body();
    } catch (...) {
      failure = std::current_exception();
      throw;
    }
  }
};

struct IssuedCall {
  std::shared_ptr<CommunicatorState> comm;
  Connection* connection;  // of comm
  Call call;
  bool compared;
  std::unique_ptr<Transfer> transfer;  // holds the tensors; null once waited for
  at::Tensor of_replicas{};            // to be summed over the replicas too
  bool complete{};                     // then its tensors are free
  bool done{};                         // a wait() of its handle has returned
};

namespace {

std::string describe(const at::Tensor& tensor) {
  std::ostringstream out;
  out << tensor.sizes() << ' ' << c10::toString(tensor.scalar_type());
  if (!tensor.is_contiguous()) out << " (not contiguous)";
  return out.str();
}

bool has_memory(const at::Tensor& tensor) {
  const int64_t end = tensor.storage_offset() + tensor.numel();
  return end * tensor.element_size() <= static_cast<int64_t>(tensor.storage().nbytes());
}

// What is wrong with the tensors of a call, or nothing.
std::string fault_of(Operation operation, const at::Tensor& output, const at::Tensor& input,
                     int root, int world_size, c10::DeviceType device) {
  if (operation == Operation::barrier) return {};
  if (!output.defined() || !input.defined()) return "needs defined tensors";
  if (!output.is_contiguous() || !input.is_contiguous()) return "needs contiguous tensors";
  if (output.device().type() != device || input.device().type() != device) {
    return device == c10::kCPU ? "needs tensors on the CPU" : "needs tensors on CUDA";
  }
  const bool widens = operation == Operation::reduce_scatter &&
                      output.scalar_type() == at::kFloat &&
                      at::isReducedFloatingType(input.scalar_type());
  if (output.scalar_type() != input.scalar_type() && !widens) return "needs tensors of one dtype";
  if (!has_memory(output) || !has_memory(input)) return "needs tensors with memory";
  const std::string world = std::to_string(world_size);
  if (operation == Operation::all_gather && output.numel() != world_size * input.numel())
    return "needs an output of " + world + " times the input's elements";
  if (operation == Operation::reduce_scatter && input.numel() != world_size * output.numel())
    return "needs an input of " + world + " times the output's elements";
  if (operation == Operation::reduce_scatter && overlap(output, input))
    return "needs an output that is no part of the input";
  if (operation == Operation::broadcast && (root < 0 || root >= world_size))
    return "has no root " + std::to_string(root) + " among " + world + " ranks";
  return {};
}

void require_fit(const CommunicatorState& comm, int ranks, Operation operation,
                 const at::Tensor& output, const at::Tensor& input, int root,
                 const std::string& unit) {
  const std::string fault = fault_of(operation, output, input, root, ranks, comm.device);
  if (fault.empty()) return;
  std::ostringstream out;
  out << "rank " << comm.global_rank << ": " << to_string(operation) << ' ' << unit << ' ' << fault;
  if (output.defined() && input.defined()) {
    out << ": output " << describe(output) << ", input " << describe(input);
  }
  throw std::invalid_argument(out.str());
}

// Whether the fault of the options leaves out the call that is about to be made.
bool leaves_out_next_call(CommunicatorState& comm) {
  const uint64_t call = comm.ranks.ledger->count_call();
  if (!comm.fault || comm.fault->rank != comm.global_rank || comm.fault->at != call) return false;
  if (comm.fault->kind == Fault::Kind::kill) raise(SIGKILL);
  return true;
}

// Lets the other ranks see the call, and compares it with theirs.
void publish(const IssuedCall& issued) {
  Connection& connection = *issued.connection;
  const PublishedCall published{issued.call, issued.comm->clock->now(), issued.transfer->address()};
  if (issued.compared) {
    connection.ledger->publish(published);
  } else {
    connection.ledger->note(published);
  }
  ++connection.sequence;
  if (issued.compared) connection.ledger->compare(issued.call.sequence);
}

void finish(IssuedCall& issued);

// Null if the call was left out.
std::shared_ptr<IssuedCall> issue(const std::shared_ptr<CommunicatorState>& comm,
                                  Connection& connection, Operation operation,
                                  const at::Tensor& output, const at::Tensor& input, int root,
                                  const std::string& unit) {
  const Group& group = connection.group();
  require_fit(*comm, group.size, operation, output, input, root, unit);
  std::weak_ptr<IssuedCall>& latest = connection.latest[connection.sequence % Ledger::kRing];
  if (const auto oldest = latest.lock()) finish(*oldest);
  if (leaves_out_next_call(*comm)) return nullptr;
  Call call;
  call.sequence = connection.sequence;
  call.level = group.level;
  call.operation = operation;
  call.root = group.world_rank(root);
  call.unit = UnitName(unit);
  call.purpose = Purpose::current();
  call.communicator = static_cast<uint8_t>(group.communicator);
  if (comm->device == c10::kCPU) call.thread = gettid() - getpid();
  if (output.defined()) {
    call.dtype = input.scalar_type();
    call.numel = std::max(output.numel(), input.numel());
  }
  call.bytes = textbook_bytes(call, group.size);
  // A barrier is a comparison.
  const bool compared = comm->compares(connection) || operation == Operation::barrier;
  const auto issued =
      std::make_shared<IssuedCall>(IssuedCall{comm, &connection, call, compared, nullptr});
  comm->attempt([&] {
    const Collective collective{call, output, input};
    issued->transfer = recorded(connection.transport->begin(collective), collective);
    publish(*issued);
    issued->transfer->start();
  });
  latest = issued;
  if (comm->keep_log) comm->log.push_back(call);
  call_observers::issued(call, output);
  return issued;
}

void complete(IssuedCall& issued) {
  issued.comm->attempt([&] {
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
  // The tensors of the call are free by now.
  if (issued.of_replicas.defined()) {
    const at::Tensor& sum = issued.of_replicas;
    Handle(issue(issued.comm, *issued.comm->replicas, Operation::all_reduce, sum, sum, 0,
                 issued.call.unit.str()))
        .wait();
    issued.of_replicas.reset();
  }
  issued.complete = true;
}

std::shared_ptr<CommunicatorState> make_state(const RankContext& context,
                                              const CommunicatorOptions& options) {
  if (!context.shared) throw std::invalid_argument("a Communicator needs a rank made by start()");
  context.shared->wait_at_most(options.timeout);
  CallRings rings(context.shared->call_rings(), Group::world(context.world_size));
  // Another process has forked each of the others, and may be killed itself.
  if (context.hosts) rings.watch(context.rank, getpid());
  const auto state = std::make_shared<CommunicatorState>();
  state->global_rank = context.rank;
  state->device = options.device;
  state->fault = options.fault;
  state->clock = options.clock;
  state->keep_log = options.keep_log;
  state->place = rings.take_set(context.rank, options.timeout);
  state->gives_place_back = std::shared_ptr<void>(
      nullptr, [rings, rank = context.rank, set = state->place.set,
                shared = context.shared](void*) mutable { rings.give_back(rank, set); });
  return state;
}

Connection connect(const RankContext& context, const CommunicatorOptions& options,
                   const CommunicatorState& state, Group group) {
  group.communicator = state.place.communicator;
  Connection connection;
  connection.backend = choose_backend(context, options, group);
  connection.compare = comparison_over(connection.backend, context, options);
  connection.ledger = make_ledger(
      context, CallRings(context.shared->call_rings(), group, state.place.set), options.timeout);
  connection.transport = make_transport(connection.backend, context, connection.ledger, options);
  return connection;
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

std::shared_ptr<Communicator> Communicator::create(const RankContext& context,
                                                   const CommunicatorOptions& options) {
  const auto state = make_state(context, options);
  state->ranks = connect(context, options, *state, Group::world(context.world_size));
  return std::shared_ptr<Communicator>(new Communicator(state, state->ranks));
}

std::shared_ptr<Communicator> Communicator::create_hybrid(const RankContext& context,
                                                          const CommunicatorOptions& options,
                                                          int shard_size) {
  const int world = context.world_size;
  if (shard_size < 1 || world % shard_size != 0) {
    throw std::invalid_argument("shards of " + std::to_string(shard_size) +
                                " ranks do not divide " + std::to_string(world) + " ranks");
  }
  if (options.link && shard_size < world) {
    throw std::invalid_argument("a simulated link takes one replica");
  }
  const auto state = make_state(context, options);
  state->ranks = connect(context, options, *state, Group::shards(context.rank, world, shard_size));
  if (shard_size < world) {
    state->replicas =
        connect(context, options, *state, Group::replicas(context.rank, world, shard_size));
  }
  return std::shared_ptr<Communicator>(new Communicator(state, state->ranks));
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
int Communicator::summed_ranks() const {
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
  return Handle(issue(state_, *ranks_, Operation::all_gather, output, input, 0, unit));
}

Handle Communicator::reduce_scatter_into(const at::Tensor& output, const at::Tensor& input,
                                         const std::string& unit) {
  const auto issued = issue(state_, *ranks_, Operation::reduce_scatter, output, input, 0, unit);
  if (issued && summed_ranks() > world_size()) issued->of_replicas = output;
  return Handle(issued);
}

Handle Communicator::all_reduce(const at::Tensor& tensor, const std::string& unit) {
  return Handle(issue(state_, *ranks_, Operation::all_reduce, tensor, tensor, 0, unit));
}

Handle Communicator::broadcast(const at::Tensor& tensor, int root, const std::string& unit) {
  return Handle(issue(state_, *ranks_, Operation::broadcast, tensor, tensor, root, unit));
}

Handle Communicator::barrier(const std::string& unit) {
  return Handle(issue(state_, *ranks_, Operation::barrier, {}, {}, 0, unit));
}

at::Tensor Communicator::empty(int64_t numel, at::ScalarType dtype) const {
  const auto key = c10::computeDispatchKey(dtype, at::kStrided, state_->device);
  return at::detail::empty_generic({numel}, ranks_->transport->allocator(),
                                   c10::DispatchKeySet(key), dtype, std::nullopt);
}

void Communicator::end_first_iteration() {
  if (!state_->in_first_iteration) return;
  // Until the others have compared what they called, no record may be written over.
  for (const Connection* connection : state_->connections()) {
    if (connection->compare != Compare::first_iteration || connection->sequence == 0) continue;
    state_->attempt(
        [&] { connection->ledger->wait_for_all(connection->sequence - 1, Stage::waited_for); });
  }
  state_->in_first_iteration = false;
}

void Communicator::wait_for_readers() {
  if (!has_readers_) return;
  // Ranks that have yet to wait for a gather would wait for one another here.
  for (const Connection* connection : state_->connections())
    for (const auto& latest : connection->latest)
      if (const auto one = latest.lock(); one && one->call.operation == Operation::all_gather)
        finish(*one);
  state_->attempt([&] {
    for (const Connection* connection : state_->connections())
      connection->transport->wait_for_readers();
  });
}

std::shared_ptr<Communicator> Communicator::without_readers() const {
  std::shared_ptr<Communicator> same(new Communicator(state_, *ranks_));
  same->has_readers_ = false;
  return same;
}

std::shared_ptr<Communicator> Communicator::replicas() const {
  if (summed_ranks() == world_size()) return nullptr;
  return std::shared_ptr<Communicator>(new Communicator(state_, *state_->replicas));
}

std::vector<Call> Communicator::take_log() {
  if (!state_->keep_log)
    throw std::logic_error("take_log(): no log is kept; set CommunicatorOptions::keep_log");
  return std::exchange(state_->log, {});
}

}  // namespace fsdp
