#include <base/whole_file.h>
#include <comm/communicator.h>
#include <memory/counting_allocator.h>
#include <shared/command_line.h>
#include <trace/recorder.h>
#include <trace/timeline.h>

#include <cstdio>
#include <sstream>

// Task 0: W ranks say hello by collectives of a few bytes.

namespace fsdp {
namespace {

struct Settings {
  int world{4};
  int skip{-1};  // the rank that leaves out the second collective
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

// Rank 0 tells what it gave and got, and what the log says.
void tell(Communicator& comm, const at::Tensor& input, const at::Tensor& output) {
  const auto log = comm.take_log();
  if (comm.rank() != 0) return;
  const Call& call = log.at(0);
  std::printf("%s\n  rank 0 gave %s\n  rank 0 has  %s\n  each rank received %lld bytes\n",
              to_string(call.operation), values(input).c_str(), values(output).c_str(),
              static_cast<long long>(call.bytes));
  std::fflush(stdout);
}

// Four elements for each rank: the shard is [4], the whole [4 W].
int say_hello(const RankContext& context, const Settings& settings) {
  CommunicatorOptions options;
  options.timeout = std::chrono::seconds(3);
  if (settings.skip >= 0) options.fault = Fault{Fault::Kind::skip, settings.skip, 1};
  const auto comm = Communicator::create(context, options);

  const at::Tensor shard = comm->empty(4).fill_(context.rank);
  const at::Tensor whole = at::empty({4 * context.world_size});
  comm->all_gather_into(whole, shard, "hello").wait();
  tell(*comm, shard, whole);

  const at::Tensor gradient = comm->empty(4 * context.world_size).fill_(context.rank + 1);
  const at::Tensor reduced = at::empty({4});
  comm->reduce_scatter_into(reduced, gradient, "hello").wait();
  tell(*comm, gradient, reduced);

  const at::Tensor given = gradient.clone();
  comm->all_reduce(gradient, "hello").wait();
  tell(*comm, given, gradient);
  return 0;
}

Settings parse(int argc, char** argv) {
  Settings settings;
  CLI::App app("Starts ranks that call three collectives on a few numbers.", "fsdp hello");
  add_number(app, "--world", settings.world, NumberRange<int64_t>{1, 8}, "ranks (default 4)");
  add_number(app, "--skip", settings.skip, NumberRange<int64_t>{1, 7},
             "a rank that leaves out the second collective");
  app.add_option("--trace", settings.trace, "write the timeline to FILE.txt, .json or .html");
  parse_command_line(app, argc, argv, [&] {
    if (settings.skip >= settings.world) {
      throw UsageError("--skip " + std::to_string(settings.skip) + ": there is no such rank");
    }
    if (!settings.trace.empty()) timeline_writer(settings.trace);
  });
  return settings;
}

int hello(const Settings& settings) {
  const auto log = EventLog::create(settings.world);
  const auto body = [&](const RankContext& context) {
    counting_allocator::install();
    at::set_num_threads(1);
    const Recorder recorder(log, context.rank, monotonic_clock());
    return say_hello(context, settings);
  };
  const auto write_trace = [&](const std::string& failure) {
    if (settings.trace.empty()) return true;
    const std::string title = "hello, " + std::to_string(settings.world) + " ranks";
    const Timeline timeline = timeline_of(*log, title, failure);
    write_whole_file(settings.trace, timeline_writer(settings.trace)(timeline));
    std::printf("timeline: %s\n", settings.trace.c_str());
    return true;
  };
  return start(settings.world, body, "fsdp hello", write_trace);
}

}  // namespace
}  // namespace fsdp

int main(int argc, char** argv) {
  using namespace fsdp;
  return run_program("fsdp hello", [&] { return hello(parse(argc, argv)); });
}
