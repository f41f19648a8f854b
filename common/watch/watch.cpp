#include <ATen/record_function.h>
#include <base/torch.h>
#include <comm/call_observer.h>
#include <comm/recording.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <memory/poison.h>
#include <sys/mman.h>
#include <unistd.h>
#include <watch/arguments.h>
#include <watch/operand.h>
#include <watch/watch.h>
#include <watch/watch_page.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <typeinfo>
#include <vector>

extern "C" const char __executable_start, etext;  // NOLINT: names that the linker defines

namespace fsdp::watch {
namespace {

using Action = WatchPage::Action;
using Kind = Action::Kind;

// The most operands that are recorded for one operator; further ones are left out.
constexpr size_t kOperands = 12;
// The most operators that can be running inside one another; deeper ones are not recorded.
constexpr size_t kNested = 64;

WatchPage* page = nullptr;
uint64_t throw_address = 0;
int rank_here = 0;

// An operator whose call has begun and not ended.
struct Running {
  uint64_t since;
  const char* name;
  size_t count;
  std::array<Operand, kOperands> operands;
  // The value of the operator's last integer argument; for cat, the dimension.
  int64_t number;
  // Number (Action::number) of the last write during this operator to memory of none of its
  // operands; 0: there was none.
  uint64_t unresolved;
  // The program's functions that were running when the operator was called (Action::frames).
  uint32_t depth;
  std::array<uint64_t, WatchPage::kFrames> frames;
};
std::array<Running, kNested> running;
size_t nested = 0;

// Returns the index, in each dimension, of the element of `operand` at `address`; nothing if no
// element begins there.
std::optional<std::array<int64_t, kDims>> index_of(const Operand& operand, uint64_t address) {
  if (address < operand.data || operand.width == 0) return {};
  auto left = static_cast<int64_t>((address - operand.data) / operand.width);
  std::array<int64_t, kDims> index{};
  std::array<bool, kDims> done{};
  for (size_t round = 0; round < operand.dims; ++round) {
    size_t largest = kDims;
    for (size_t d = 0; d < operand.dims; ++d) {
      const bool larger = largest == kDims || operand.strides[d] > operand.strides[largest];
      if (!done[d] && larger) largest = d;
    }
    done[largest] = true;
    const int64_t stride = operand.strides[largest];
    if (stride <= 0 || operand.sizes[largest] == 1) continue;
    index[largest] = left / stride;
    if (index[largest] >= operand.sizes[largest]) return {};
    left %= stride;
  }
  if (left != 0) return {};
  return index;
}

// Returns the address of the element of `source` that an elementwise operator reads for element
// `index` of `target`; 0 if the sizes do not match.
uint64_t address_of(const Operand& source, const Operand& target,
                    const std::array<int64_t, kDims>& index) {
  if (source.dims > target.dims || source.numel() == 0) return 0;
  uint64_t address = source.data;
  for (size_t d = 0; d < source.dims; ++d) {
    const size_t of_target = target.dims - source.dims + d;
    if (source.sizes[d] != target.sizes[of_target] && source.sizes[d] != 1) return 0;
    const int64_t at = source.sizes[d] == 1 ? 0 : index[of_target];
    address += static_cast<uint64_t>(at * source.strides[d]) * source.width;
  }
  return address;
}

bool is(const char* name, const char* other) {
  return std::strcmp(name, other) == 0;
}

bool copies(const char* name) {
  return is(name, "copy_") || is(name, "_foreach_copy_") || is(name, "cat") || is(name, "clone") ||
         is(name, "_to_copy");
}

void add_source(Action& action, uint64_t address, uint64_t width) {
  for (size_t i = 0; address != 0 && i < action.sources.size(); ++i) {
    if (action.sources[i] != 0) continue;
    action.sources[i] = address;
    action.widths[i] = static_cast<uint32_t>(width);
    return;
  }
}

// Adds to `action` the addresses of the elements from which `op` computed the element `index` of
// `target`.
void add_sources(Action& action, const Running& op, const Operand& target,
                 std::array<int64_t, kDims> index) {
  const bool joins = is(op.name, "cat");
  const auto dim = static_cast<size_t>(op.number < 0 ? op.number + static_cast<int64_t>(target.dims)
                                                     : op.number);
  for (size_t i = 0; i < op.count; ++i) {
    const Operand& source = op.operands[i];
    if (is(op.name, "copy_") && i != 1) continue;
    // `source` is a tensor without dimensions that stands for a number, such as a divisor of
    // div_().
    if (source.dims == 0 && target.dims > 0) continue;
    if (!joins) {
      add_source(action, address_of(source, target, index), source.width);
    } else if (dim < source.dims) {
      if (index[dim] < source.sizes[dim]) {
        Operand part = target;
        part.sizes[dim] = source.sizes[dim];
        add_source(action, address_of(source, part, index), source.width);
        return;
      }
      index[dim] -= source.sizes[dim];
    }
  }
}

void put(char* to, size_t bytes, const char* text) {
  std::strncpy(to, text, bytes - 1);
  to[bytes - 1] = 0;
}

// Adds an action to the WatchPage: this rank now does something of this `kind`. Stores the return
// addresses of the functions that are running.
Action& add(Kind kind) {
  const uint64_t number = ++page->actions;
  Action& action = page->action[number % WatchPage::kActions];
  std::memset(static_cast<void*>(&action), 0, sizeof action);
  action.kind = kind;
  action.number = number;
  action.time = kind == Kind::write || kind == Kind::call ? page->time : ++page->time;
  void* frames[160];
  const int count = backtrace(frames, 160);
  const auto begin = reinterpret_cast<uint64_t>(&__executable_start);
  for (int i = 0; i < count && action.depth < WatchPage::kFrames; ++i) {
    const auto address = reinterpret_cast<uint64_t>(frames[i]);
    if (address >= begin && address < reinterpret_cast<uint64_t>(&etext))
      action.frames[action.depth++] = address - begin;
  }
  return action;
}

// Adds to `action` the addresses of the elements of this rank from which a collective computed the
// element at `address`. If another rank has sent the element, adds the element at the same place in
// what this rank sent, because all ranks run the same code.
void add_sources(Action& action, const Collective& collective, uint64_t address) {
  const auto input = operand_of(collective.input), output = operand_of(collective.output);
  if (!input || !output || address < output->data) return;
  const uint64_t at = address - output->data;
  const uint64_t bytes = input->numel() * input->width, own = static_cast<uint64_t>(rank_here);
  if (bytes == 0) return;
  const Operation operation = collective.call.operation;
  if (operation == Operation::all_reduce) add_source(action, address, input->width);
  if (operation == Operation::all_gather)
    add_source(action, input->data + at % bytes, input->width);
  if (operation == Operation::reduce_scatter) {
    // Finds the place in the input by a count of elements, not of bytes, because input and output
    // of a reduce-scatter may have different dtypes.
    const uint64_t element = own * output->numel() + at / output->width;
    add_source(action, input->data + element * input->width, input->width);
  }
}

// Adds an action to the WatchPage: something has just been written to the watched address.
void add_write() {
  Action& action = add(Kind::write);
  action.address = page->address;
  action.bytes = page->width;
  std::memcpy(&action.value, reinterpret_cast<const void*>(page->address), page->width);
  action.since = action.time;
  if (const Collective* collective = receiving()) {
    put(action.collective, sizeof action.collective, collective->call.name().c_str());
    add_sources(action, *collective, page->address);
    return;
  }
  if (nested == 0 || nested > kNested) return;
  Running& op = running[nested - 1];
  put(action.operation, sizeof action.operation, op.name);
  action.since = op.since;
  action.copies = copies(op.name);
  for (size_t i = 0; i < op.count; ++i) {
    const Operand& target = op.operands[i];
    if (const auto index = index_of(target, page->address)) {
      add_sources(action, op, target, *index);
      return;
    }
  }
  op.unresolved = action.number;
}

void on_trap(int, siginfo_t*, void* context) {
  const auto* state = static_cast<const ucontext_t*>(context);
#ifdef __x86_64__
  const auto at = static_cast<uint64_t>(state->uc_mcontext.gregs[REG_RIP]);
  if (at == throw_address) {
    const auto* type = reinterpret_cast<const std::type_info*>(state->uc_mcontext.gregs[REG_RSI]);
    Action& action = add(Kind::raise);
    put(action.operation, sizeof action.operation, type->name());
    return;
  }
#else
  static_cast<void>(state);
#endif
  if (page->address != 0) add_write();
}

void on_spoil(const void* data, size_t bytes) {
  Action& action = add(Kind::spoil);
  action.address = reinterpret_cast<uint64_t>(data);
  action.bytes = bytes;
}

// Adds an action to the WatchPage: the program's code has called the operator `op`. Adds none if
// torch itself has called it, so that the same functions of the program were running when the
// operator around it was called.
void add_call(const at::RecordFunction& function, Running& op) {
  Action& action = add(Kind::call);
  op.depth = action.depth;
  op.frames = action.frames;
  const Running* const around = nested < 2 ? nullptr : &running[nested - 2];
  if (around != nullptr && around->depth == op.depth && around->frames == op.frames) {
    --page->actions;
    action.kind = Kind::none;
    return;
  }
  put(action.operation, sizeof action.operation, op.name);
  action.arguments = hash_of_arguments(function);
}

std::unique_ptr<at::ObserverContext> on_operator(const at::RecordFunction& function) {
  if (nested++ >= kNested) return nullptr;
  Running& op = running[nested - 1];
  const char* const name = function.name();
  const char* const colons = std::strrchr(name, ':');
  op = {++page->time, colons == nullptr ? name : colons + 1, 0, {}, 0, 0, 0, {}};
  const auto take = [&](const at::Tensor& tensor) {
    const auto operand = operand_of(tensor);
    if (operand && op.count < kOperands) op.operands[op.count++] = *operand;
  };
  for (const c10::IValue& input : function.inputs()) {
    if (input.isTensor()) take(input.toTensor());
    if (input.isInt()) op.number = input.toInt();
    if (!input.isTensorList()) continue;
    for (const at::Tensor& tensor : input.toTensorVector())
      take(tensor);
  }
  if (page->calls) add_call(function, op);
  return nullptr;
}

void on_operator_end(const at::RecordFunction& function, at::ObserverContext*) {
  if (nested-- > kNested) return;
  const Running& op = running[nested];
  if (is(op.name, "_local_scalar_dense") && op.count == 1) {
    Action& action = add(Kind::read);
    action.address = op.operands[0].data;
    action.bytes = op.operands[0].width;
    const double value = function.outputs().at(0).toScalar().toDouble();
    std::memcpy(&action.value, &value, sizeof value);
  }
  if (op.unresolved == 0) return;
  Action& action = page->action[op.unresolved % WatchPage::kActions];
  for (const c10::IValue& output : function.outputs()) {
    if (!output.isTensor()) continue;
    const auto target = operand_of(output.toTensor());
    if (!target) continue;
    if (const auto index = index_of(*target, action.address))
      add_sources(action, op, *target, *index);
  }
}

class Calls final : public CallObserver {
  void issued(const Call& call, const at::Tensor&) override { add_call(Kind::issue, call); }
  void waits(const Call& call) override { add_call(Kind::wait, call); }
  void waited(const Call&, Moved) override {}

  static void add_call(Kind kind, const Call& call) {
    Action& action = add(kind);
    put(action.collective, sizeof action.collective, call.name().c_str());
  }
};

uint64_t address_of_element(const at::Tensor& tensor, int64_t element) {
  auto operand = operand_of(tensor);
  if (!operand || element >= tensor.numel()) return 0;
  uint64_t address = operand->data;
  for (size_t d = operand->dims; d-- > 0; element /= operand->sizes[d])
    address +=
        static_cast<uint64_t>(element % operand->sizes[d] * operand->strides[d]) * operand->width;
  return address;
}

bool asked_for(const std::string& name) {
  put(add(Kind::observe).operation, sizeof(Action::operation), name.c_str());
  return name == page->observation;
}

[[noreturn]] void end(uint64_t address, uint64_t width) {
  page->observed = true;
  page->observed_address = address;
  page->observed_width = width;
  _exit(0);
}

}  // namespace

void begin(int rank) {
  const char* named = std::getenv("FSDP_WATCH");
  if (named == nullptr || !replays()) return;
  void* const memory = mmap(nullptr, sizeof(WatchPage), PROT_READ | PROT_WRITE, MAP_SHARED,
                            static_cast<int>(std::strtol(named, nullptr, 10)), 0);
  if (memory == MAP_FAILED || static_cast<WatchPage*>(memory)->mark != WatchPage::kMark) return;
  rank_here = rank;
  throw_address = reinterpret_cast<uint64_t>(dlsym(RTLD_DEFAULT, "__cxa_throw"));
  void* warm[4];
  // The first call of backtrace() loads a library, so it is made here and not in a signal handler.
  backtrace(warm, 4);
  struct sigaction action {};
  action.sa_sigaction = on_trap;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGTRAP, &action, nullptr);
  static Calls calls;
  page = static_cast<WatchPage*>(memory);
  page->throw_address = throw_address;
  page->program_start = reinterpret_cast<uint64_t>(&__executable_start);
  poison::on_spoil(on_spoil);
  at::addGlobalCallback(at::RecordFunctionCallback(on_operator, on_operator_end)
                            .needsInputs(true)
                            .needsOutputs(true)
                            .scopes({at::RecordScope::FUNCTION}));
  page->arm = true;
  // ./fsdp why traces this process. At this signal it sets the watchpoint, and then continues the
  // process without the signal.
  raise(SIGTRAP);
}

void observed(const std::string& name, const nlohmann::json& value) {
  if (page == nullptr || !asked_for(name)) return;
  if (!value.is_number()) end(0, 0);
  for (uint64_t number = page->actions; number > 0 && number + WatchPage::kActions > page->actions;
       --number) {
    const Action& action = page->action[number % WatchPage::kActions];
    double read = 0;
    std::memcpy(&read, &action.value, sizeof read);
    if (action.kind == Kind::read && read == value.get<double>()) end(action.address, action.bytes);
  }
  end(0, 0);
}

void observed(const std::string& name, const at::Tensor& tensor) {
  if (page == nullptr || !asked_for(name)) return;
  if (!tensor.defined() || page->element < 0) end(0, 0);
  end(address_of_element(tensor, page->element), tensor.element_size());
}

}  // namespace fsdp::watch
