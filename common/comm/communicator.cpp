#include <ATen/EmptyTensor.h>
#include <comm/backends.h>
#include <comm/call_observer.h>
#include <comm/communicator.h>
#include <comm/ledger.h>
#include <memory/storage.h>

#include <csignal>
#include <exception>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace fsdp {

struct CommunicatorState {
  int rank{};
  int world_size{};
  std::string backend;
  c10::DeviceType device{};
  Compare compare{};
  bool comparing{};
  std::optional<Fault> fault;
  std::shared_ptr<Clock> clock;
  std::shared_ptr<SharedRegion> shared;
  std::shared_ptr<Ledger> ledger;
  std::shared_ptr<Transport> transport;
  uint64_t calls{};     // made by this rank, skipped ones included
  uint64_t sequence{};  // of the next call
  std::vector<Call> log;
  std::exception_ptr failure;  // the first, if a call has failed

  // Does `body`, which calls or waits, unless that has failed before. After the first failure the
  // ranks' calls no longer match, and to wait again would only delay its report.
  template <class Body>
  void attempt(const Body& body) {
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
  Call call;
  bool compared;
  std::unique_ptr<Transfer> transfer;  // holds the tensors; null once waited for
};

bool Handle::pending() const {
  return call_ && call_->transfer;
}

void Handle::wait() {
  if (!pending()) return;
  CommunicatorState& comm = *call_->comm;
  comm.attempt([&] {
    if (call_observer != nullptr) call_observer->waits(call_->call);
    if (call_->compared) comm.ledger->check(call_->call.sequence);
    call_->transfer->complete();
    if (call_observer != nullptr) {
      call_observer->waited(call_->call, call_->transfer->moved());
    }
  });
  call_->transfer.reset();
}

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
  if (output.scalar_type() != input.scalar_type()) return "needs tensors of one dtype";
  if (!has_memory(output) || !has_memory(input)) return "needs tensors with memory";
  const std::string world = std::to_string(world_size);
  switch (operation) {
    case Operation::all_gather:
      if (output.numel() != world_size * input.numel()) {
        return "needs an output of " + world + " times the input's elements";
      }
      break;
    case Operation::reduce_scatter:
      if (input.numel() != world_size * output.numel()) {
        return "needs an input of " + world + " times the output's elements";
      }
      if (overlap(output, input)) return "needs an output that is no part of the input";
      break;
    case Operation::broadcast:
      if (root < 0 || root >= world_size) {
        return "has no root " + std::to_string(root) + " among " + world + " ranks";
      }
      break;
    default:
      break;
  }
  return {};
}

void require_fit(const CommunicatorState& comm, Operation operation, const at::Tensor& output,
                 const at::Tensor& input, int root, const std::string& unit) {
  const std::string fault = fault_of(operation, output, input, root, comm.world_size, comm.device);
  if (fault.empty()) return;
  std::ostringstream out;
  out << "rank " << comm.rank << ": " << to_string(operation) << ' ' << unit << ' ' << fault;
  if (output.defined() && input.defined()) {
    out << ": output " << describe(output) << ", input " << describe(input);
  }
  throw std::invalid_argument(out.str());
}

// Whether the fault of the options leaves out the call that is about to be made.
bool leaves_out_next_call(CommunicatorState& comm) {
  const uint64_t call = comm.calls++;
  if (!comm.fault || comm.fault->rank != comm.rank || comm.fault->at != call) return false;
  if (comm.fault->kind == Fault::Kind::kill) raise(SIGKILL);
  return true;
}

// Lets the other ranks see the call, and compares it with theirs.
void publish(CommunicatorState& comm, const IssuedCall& issued) {
  const PublishedCall published{issued.call, comm.clock->now(), issued.transfer->address()};
  if (issued.compared) {
    comm.ledger->publish(published);
  } else {
    comm.ledger->note(published);
  }
  ++comm.sequence;
  if (issued.compared) comm.ledger->compare(issued.call.sequence);
}

Handle issue(const std::shared_ptr<CommunicatorState>& comm, Operation operation,
             const at::Tensor& output, const at::Tensor& input, int root, const std::string& unit) {
  require_fit(*comm, operation, output, input, root, unit);
  if (leaves_out_next_call(*comm)) return {};
  Call call;
  call.sequence = comm->sequence;
  call.operation = operation;
  call.root = root;
  call.unit = UnitName(unit);
  if (output.defined()) {
    call.dtype = output.scalar_type();
    call.numel = std::max(output.numel(), input.numel());
  }
  call.bytes = textbook_bytes(call, comm->world_size);
  const bool compared = comm->comparing || operation == Operation::barrier;  // it is a comparison
  const auto issued = std::make_shared<IssuedCall>(IssuedCall{comm, call, compared, nullptr});
  comm->attempt([&] {
    issued->transfer = comm->transport->begin({call, output, input});
    publish(*comm, *issued);
    issued->transfer->start();
  });
  comm->log.push_back(call);
  if (call_observer != nullptr) call_observer->issued(call, output);
  return Handle(issued);
}

}  // namespace

std::shared_ptr<Communicator> Communicator::create(const RankContext& context,
                                                   const CommunicatorOptions& options) {
  if (!context.shared) throw std::invalid_argument("a Communicator needs a rank made by start()");
  const auto state = std::make_shared<CommunicatorState>();
  state->rank = context.rank;
  state->world_size = context.world_size;
  state->backend = choose_backend(context, options);
  state->device = options.device;
  state->compare = options.compare.value_or(state->backend == "nccl" ? Compare::first_iteration
                                                                     : Compare::always);
  state->comparing = state->compare != Compare::never;
  if (state->compare != Compare::always && (state->backend == "shm" || options.link)) {
    throw std::invalid_argument("calls over " +
                                std::string(options.link ? "a simulated link" : "backend shm") +
                                " have to be compared always");
  }
  state->fault = options.fault;
  state->clock = options.clock;
  state->shared = context.shared;
  state->ledger = std::make_shared<Ledger>(
      CallRings(context.shared->call_rings(), context.world_size), context.rank, options.timeout);
  if (state->ledger->published() > 0) {
    throw std::logic_error("rank " + std::to_string(context.rank) +
                           ": a second Communicator over the same ledger");
  }
  state->transport = make_transport(state->backend, context, state->ledger, options);
  return std::shared_ptr<Communicator>(new Communicator(state));
}

int Communicator::rank() const {
  return state_->rank;
}
int Communicator::world_size() const {
  return state_->world_size;
}
const std::string& Communicator::backend() const {
  return state_->backend;
}
c10::DeviceType Communicator::device() const {
  return state_->device;
}

Handle Communicator::all_gather_into(const at::Tensor& output, const at::Tensor& input,
                                     const std::string& unit) {
  return issue(state_, Operation::all_gather, output, input, 0, unit);
}

Handle Communicator::reduce_scatter_into(const at::Tensor& output, const at::Tensor& input,
                                         const std::string& unit) {
  return issue(state_, Operation::reduce_scatter, output, input, 0, unit);
}

Handle Communicator::all_reduce(const at::Tensor& tensor, const std::string& unit) {
  return issue(state_, Operation::all_reduce, tensor, tensor, 0, unit);
}

Handle Communicator::broadcast(const at::Tensor& tensor, int root, const std::string& unit) {
  return issue(state_, Operation::broadcast, tensor, tensor, root, unit);
}

Handle Communicator::barrier(const std::string& unit) {
  return issue(state_, Operation::barrier, {}, {}, 0, unit);
}

at::Tensor Communicator::empty(int64_t numel, at::ScalarType dtype) const {
  const auto key = c10::computeDispatchKey(dtype, at::kStrided, state_->device);
  return at::detail::empty_generic({numel}, state_->transport->allocator(),
                                   c10::DispatchKeySet(key), dtype, std::nullopt);
}

void Communicator::end_first_iteration() {
  if (state_->compare != Compare::first_iteration || !state_->comparing) return;
  // Until the others have compared what they called, no record may be written over.
  if (state_->sequence > 0) {
    state_->attempt([&] { state_->ledger->wait_for_all(state_->sequence - 1, Stage::waited_for); });
  }
  state_->comparing = false;
}

void Communicator::wait_for_readers() {
  state_->attempt([&] { state_->transport->wait_for_readers(); });
}

std::vector<Call> Communicator::take_log() {
  return std::exchange(state_->log, {});
}

}  // namespace fsdp
