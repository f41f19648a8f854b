#include <ATen/EmptyTensor.h>
#include <comm/communicator.h>
#include <comm/transport.h>
#include <cuda/gpu.h>
#include <trace/recorder.h>

#include <csignal>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace fsdp {

struct Handle::Call {
  std::shared_ptr<Ledger> ledger;
  std::unique_ptr<Transfer> transfer;  // holds the tensors; null once waited for
  LoggedCall logged;
  uint64_t flight;  // its number among the recorder's events, if there is one
  bool compared;
};

namespace {

Event event_of(EventKind kind, const LoggedCall& call) {
  Event event;
  event.kind = kind;
  event.operation = call.operation;
  event.set_name(call.unit);
  event.sequence = call.sequence;
  event.bytes = call.bytes;
  return event;
}

// Records the issue and that the call is in flight: the flight's number.
uint64_t record_issue(Recorder& recorder, const LoggedCall& call, const at::Tensor& output) {
  recorder.instant(event_of(EventKind::issue, call));
  if (call.operation == Operation::all_gather && !call.unit.starts_with('<')) {
    recorder.watch(output.storage().data(), call.unit);
  }
  return recorder.begin(event_of(EventKind::flight, call));
}

}  // namespace

bool Handle::pending() const {
  return call_ && call_->transfer;
}

void Handle::wait() {
  if (!pending()) return;
  Recorder* recorder = Recorder::current();
  const uint64_t wait = recorder ? recorder->begin(event_of(EventKind::wait, call_->logged)) : 0;
  if (call_->compared) call_->ledger->check(call_->logged.sequence);
  call_->transfer->complete();
  if (recorder) {
    recorder->end_flight(call_->flight, call_->transfer->moved());
    recorder->end(wait);
  }
  call_->transfer.reset();
}

namespace {

// The bytes a rank receives, as the header of LoggedCall counts them.
int64_t textbook_bytes(const CallRecord& record, int64_t world_size) {
  const int64_t others = world_size - 1;
  const auto element = static_cast<int64_t>(c10::elementSize(record.dtype));
  switch (record.operation) {
    case Operation::all_gather:
    case Operation::reduce_scatter:
    case Operation::broadcast:
      return others * record.numel * element / world_size;
    case Operation::all_reduce: {
      const int64_t part = (record.numel + world_size - 1) / world_size;
      return 2 * others * part * element;
    }
    case Operation::barrier:
      return 0;
  }
  return 0;
}

std::string describe(const at::Tensor& tensor) {
  std::ostringstream out;
  out << tensor.sizes() << ' ' << c10::toString(tensor.scalar_type());
  if (!tensor.is_contiguous()) out << " (not contiguous)";
  return out.str();
}

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  auto begin = [](const at::Tensor& t) { return static_cast<const char*>(t.const_data_ptr()); };
  return begin(a) < begin(b) + b.nbytes() && begin(b) < begin(a) + a.nbytes();
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
  std::string world = std::to_string(world_size);
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

std::string choose_backend(const RankContext& context, const CommunicatorOptions& options) {
  if (options.backend != "auto") return options.backend;
  if (options.device == c10::kCUDA && context.world_size <= gpu::count_gpus()) return "nccl";
  return context.shared->has_arenas() ? "shm" : "gloo";
}

std::shared_ptr<Transport> make_nccl(const RankContext& context,
                                     const std::shared_ptr<Ledger>& ledger,
                                     const CommunicatorOptions& options) {
  if (!gpu::built() || options.device != c10::kCUDA) {
    throw std::invalid_argument("backend nccl needs a CUDA build and device cuda");
  }
  if (context.world_size > gpu::count_gpus()) {
    throw std::invalid_argument("backend nccl needs " + std::to_string(context.world_size) +
                                " GPUs, one for each rank; this machine has " +
                                std::to_string(gpu::count_gpus()));
  }
  return make_nccl_transport(context, ledger, options.timeout);
}

std::shared_ptr<Transport> make_transport(const std::string& backend, const RankContext& context,
                                          const std::shared_ptr<Ledger>& ledger,
                                          const CommunicatorOptions& options) {
  if (backend == "nccl") return make_nccl(context, ledger, options);
  std::shared_ptr<Transport> transport;
  if (backend == "shm") {
    transport = make_shm_transport(context, ledger);
  } else if (backend == "gloo") {
    transport = make_gloo_transport(context, ledger, options.timeout);
  } else {
    throw std::invalid_argument("unknown backend '" + backend +
                                "': allowed are auto, shm, gloo and nccl");
  }
  if (options.device == c10::kCPU) return transport;
  // The GPU copies by itself to and from pinned memory; that of the arenas is not.
  c10::Allocator* staging = backend == "gloo" ? gpu::pinned_allocator() : transport->allocator();
  return make_staged_transport(std::move(transport), options.device, staging);
}

}  // namespace

std::shared_ptr<Communicator> Communicator::create(const RankContext& context,
                                                   const CommunicatorOptions& options) {
  if (!context.shared) throw std::invalid_argument("a Communicator needs a rank made by start()");
  std::shared_ptr<Communicator> self(new Communicator);
  self->rank_ = context.rank;
  self->world_size_ = context.world_size;
  self->backend_ = choose_backend(context, options);
  self->device_ = options.device;
  self->compare_ = options.compare.value_or(self->backend_ == "nccl" ? Compare::first_iteration
                                                                     : Compare::always);
  self->comparing_ = self->compare_ != Compare::never;
  if (self->compare_ != Compare::always && (self->backend_ == "shm" || options.link)) {
    throw std::invalid_argument("calls over " +
                                std::string(options.link ? "a simulated link" : "backend shm") +
                                " have to be compared always");
  }
  self->fault_ = options.fault;
  self->clock_ = options.clock;
  self->shared_ = context.shared;
  self->ledger_ = std::make_shared<Ledger>(context.shared->ledger(), context.rank,
                                           context.world_size, options.timeout);
  if (self->ledger_->published(context.rank) > 0) {
    throw std::logic_error("rank " + std::to_string(context.rank) +
                           ": a second Communicator over the same ledger");
  }
  self->transport_ = make_transport(self->backend_, context, self->ledger_, options);
  if (options.link) {
    self->transport_ = make_link_transport(std::move(self->transport_), *options.link,
                                           context.world_size, self->ledger_, options.clock);
  }
  return self;
}

Communicator::~Communicator() = default;

Handle Communicator::all_gather_into(const at::Tensor& output, const at::Tensor& input,
                                     const std::string& unit) {
  return issue(Operation::all_gather, output, input, 0, unit);
}

Handle Communicator::reduce_scatter_into(const at::Tensor& output, const at::Tensor& input,
                                         const std::string& unit) {
  return issue(Operation::reduce_scatter, output, input, 0, unit);
}

Handle Communicator::all_reduce(const at::Tensor& tensor, const std::string& unit) {
  return issue(Operation::all_reduce, tensor, tensor, 0, unit);
}

Handle Communicator::broadcast(const at::Tensor& tensor, int root, const std::string& unit) {
  return issue(Operation::broadcast, tensor, tensor, root, unit);
}

Handle Communicator::barrier(const std::string& unit) {
  return issue(Operation::barrier, {}, {}, 0, unit);
}

at::Tensor Communicator::empty(int64_t numel, at::ScalarType dtype) const {
  const auto key = c10::computeDispatchKey(dtype, at::kStrided, device_);
  return at::detail::empty_generic({numel}, transport_->allocator(), c10::DispatchKeySet(key),
                                   dtype, std::nullopt);
}

void Communicator::end_first_iteration() {
  if (compare_ != Compare::first_iteration || !comparing_) return;
  // Until the others have compared what they called, no record may be written over.
  constexpr uint32_t kWaitedFor = 2;
  if (sequence_ > 0) ledger_->wait_for_all(sequence_ - 1, kWaitedFor);
  comparing_ = false;
}

void Communicator::wait_for_readers() {
  transport_->wait_for_readers();
}

std::vector<LoggedCall> Communicator::take_log() {
  return std::exchange(log_, {});
}

Handle Communicator::issue(Operation operation, const at::Tensor& output, const at::Tensor& input,
                           int root, const std::string& unit) {
  std::string fault = fault_of(operation, output, input, root, world_size_, device_);
  if (!fault.empty()) {
    std::ostringstream out;
    out << "rank " << rank_ << ": " << to_string(operation) << ' ' << unit << ' ' << fault;
    if (output.defined() && input.defined()) {
      out << ": output " << describe(output) << ", input " << describe(input);
    }
    throw std::invalid_argument(out.str());
  }

  if (uint64_t call = calls_++; fault_ && fault_->rank == rank_ && fault_->at == call) {
    if (fault_->kind == Fault::Kind::skip) return {};
    raise(SIGKILL);
  }

  CallRecord record;
  record.sequence = sequence_;
  record.operation = operation;
  record.issued_at = clock_->now();
  record.root = root;
  record.set_unit(unit);
  if (output.defined()) {
    record.dtype = output.scalar_type();
    record.numel = std::max(output.numel(), input.numel());
  }
  const int64_t bytes = textbook_bytes(record, world_size_);
  auto transfer = transport_->begin({operation, output, input, root, record.sequence, bytes});
  record.address = transfer->address();
  const bool compared = comparing_ || operation == Operation::barrier;  // which is a comparison
  if (compared) {
    ledger_->publish(record);
  } else {
    ledger_->note(record);
  }
  ++sequence_;
  if (compared) ledger_->compare(record.sequence);
  transfer->start();

  log_.push_back({record.sequence, operation, unit, bytes});
  const uint64_t flight =
      Recorder::current() ? record_issue(*Recorder::current(), log_.back(), output) : 0;
  return Handle(std::make_shared<Handle::Call>(
      Handle::Call{ledger_, std::move(transfer), log_.back(), flight, compared}));
}

}  // namespace fsdp
