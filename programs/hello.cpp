#include <base/mapping.h>
#include <base/whole_file.h>
#include <comm/communicator.h>
#include <comm/communicator_options.h>
#include <command_line/command_line.h>
#include <hosts/start.h>
#include <launch/rank_context.h>
#include <memory/counting_allocator.h>
#include <trace/recorder.h>
#include <trace/timeline.h>

#include <array>
#include <cstdio>
#include <sstream>

// The program of ./fsdp hello: W ranks call three collectives with a few numbers, and the program
// prints what each rank sent and received.

namespace fsdp {
namespace {

struct Settings {
  int world{4};
  int skip{-1};  // the rank that leaves out the second collective; -1: none
  std::string trace;
};

std::string values(const at::Tensor& tensor) {
  std::ostringstream out;
  out << '[';
  for (int64_t i = 0; i < tensor.numel(); ++i)
    out << (i == 0 ? "" : " ") << tensor[i].item<float>();
  out << ']';
  return out.str();
}

// A text about one rank in one collective: the rank's input and output. The rank writes it into
// memory that it shares with the process that prints it.
struct Part {
  long long bytes;  // number of bytes that the rank received in this collective
  char text[800];   // the rank's input and output; empty: the rank left out this collective
};
constexpr std::array<Operation, 3> kCalls{Operation::all_gather, Operation::reduce_scatter,
                                          Operation::all_reduce};
using Parts = std::array<Part, kCalls.size()>;

void tell(Communicator& comm, Part& part, const at::Tensor& input, const at::Tensor& output) {
  const auto log = comm.take_log();
  if (log.empty()) return;  // no call was logged: this rank left out the collective
  part.bytes = log[0].bytes;
  std::snprintf(part.text, sizeof part.text, "gave %s\n         has  %s", values(input).c_str(),
                values(output).c_str());
}

// Prints for each collective the inputs and outputs of the ranks that this process has started.
void print(const Parts* ranks, int world) {
  for (size_t call = 0; call < kCalls.size(); ++call) {
    std::printf("%s\n", to_string(kCalls[call]));
    long long bytes = 0;
    for (int rank = 0; rank < world; ++rank) {
      const Part& part = ranks[rank][call];
      if (part.text[0] == '\0') continue;
      std::printf("  rank %d %s\n", rank, part.text);
      bytes = part.bytes;
    }
    std::printf("  each rank received %lld bytes\n", bytes);
  }
}

// Runs in each rank: calls the three collectives, and writes a text about each into `parts`. Each
// rank has a shard of 4 elements, so the whole tensor is [4 W].
int say_hello(const RankContext& context, const Settings& settings, Parts& parts) {
  CommunicatorOptions options;
  options.timeout = std::chrono::seconds(3);
  options.keep_log = true;
  if (settings.skip >= 0) options.fault = Fault{Fault::Kind::skip, settings.skip, 1};
  const auto comm = Communicator::create(context, options);

  const at::Tensor shard = comm->empty(4).fill_(context.rank);
  const at::Tensor whole = at::empty({4 * context.world_size});
  comm->all_gather_into(whole, shard, "hello").wait();
  tell(*comm, parts[0], shard, whole);

  const at::Tensor gradient = comm->empty(4 * context.world_size);
  for (int part = 0; part < context.world_size; ++part)
    gradient.narrow(0, 4 * part, 4).fill_((context.rank + 1) * (part + 1));
  const at::Tensor reduced = at::empty({4});
  comm->reduce_scatter_into(reduced, gradient, "hello").wait();
  tell(*comm, parts[1], gradient, reduced);

  const at::Tensor given = gradient.clone();
  comm->all_reduce(gradient, "hello").wait();
  tell(*comm, parts[2], given, gradient);
  return 0;
}

Settings parse(int argc, char** argv) {
  Settings settings;
  CLI::App app("Starts ranks that call three collectives on a few numbers.", "fsdp hello");
  add_number(app, "--world", settings.world, NumberRange<int64_t>{1, 8}, "ranks (default 4)");
  add_number(app, "--skip", settings.skip, NumberRange<int64_t>{1, 7},
             "a rank that leaves out the second collective");
  app.add_option("--trace", settings.trace, "write the timeline to FILE.txt, .json or .html");
  parse_command_line(app, {argv + 1, argv + argc}, [&] {
    if (settings.skip >= settings.world) {
      throw UsageError("--skip " + std::to_string(settings.skip) + ": there is no such rank");
    }
    if (settings.trace.empty()) return;
    timeline_writer(settings.trace);
    check_output("--trace", settings.trace, reason_not_to_write(settings.trace));
  });
  return settings;
}

int hello(const Settings& settings) {
  const Mapping memory("hello", sizeof(Parts) * static_cast<size_t>(settings.world));
  // An array with an element for each rank: the texts about this rank. It is in memory that the
  // ranks and this process share.
  auto* const parts = reinterpret_cast<Parts*>(memory.base());
  const auto log = EventLog::create(settings.world);
  const auto body = [&](const RankContext& context) {
    counting_allocator::install();
    at::set_num_threads(1);
    const Recorder recorder(log, context.rank, monotonic_clock());
    return say_hello(context, settings, parts[context.rank]);
  };
  const auto at_end = [&](const std::string& failure) {
    if (failure.empty()) print(parts, settings.world);
    if (settings.trace.empty()) return true;
    const std::string title = "hello, " + std::to_string(settings.world) + " ranks";
    const Timeline timeline = timeline_of(*log, title, failure);
    write_whole_file(settings.trace, timeline_writer(settings.trace)(timeline));
    std::printf("timeline: %s\n", settings.trace.c_str());
    return true;
  };
  return start(settings.world, body, "fsdp hello", at_end);
}

}  // namespace
}  // namespace fsdp

int main(int argc, char** argv) {
  using namespace fsdp;
  return run_program("fsdp hello", [&] { return hello(parse(argc, argv)); });
}
