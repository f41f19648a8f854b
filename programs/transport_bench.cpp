#include <base/median.h>
#include <comm/communicator.h>
#include <comm/communicator_options.h>
#include <command_line/command_line.h>
#include <command_line/usage.h>
#include <launch/launcher.h>

#include <cstdio>
#include <cstring>

// Compares the bytes that a transport moves in a second with those that memcpy() moves. For the
// comparison, all ranks copy at the same time, and each copies as many bytes as the larger tensor
// of the collective has. Copies and collectives take turns in one run, so a busy machine slows
// both.

namespace {

using Clock = std::chrono::steady_clock;

struct Settings {
  std::vector<int> worlds{2, 4};
  std::vector<std::string> backends{"shm", "gloo"};
  double megabytes{32};
  int rounds{51};
};

struct Timings {
  // [s] The times of a memcpy() and of the two collectives, one element for each measured round.
  std::vector<double> copy, all_gather, reduce_scatter;
};

// Returns the time [s] that `work` takes on all ranks: from a barrier, after which the ranks begin,
// until the last rank has finished.
template <typename Work>
double seconds(fsdp::Communicator& comm, const Work& work) {
  comm.barrier("<bench>").wait();
  const auto start = Clock::now();
  work();
  comm.barrier("<bench>").wait();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Timings measure(fsdp::Communicator& comm, int64_t part, int rounds) {
  const at::Tensor whole = comm.empty(part * comm.world_size());
  const at::Tensor shard = comm.empty(part);
  const at::Tensor other = at::ones(whole.sizes());
  whole.fill_(1);
  shard.fill_(1);
  Timings timings;
  // Rounds -2 and -1 warm up: they touch all memory once, and their times are not kept.
  for (int round = -2; round < rounds; ++round) {
    const double copy =
        seconds(comm, [&] { std::memcpy(whole.data_ptr(), other.data_ptr(), whole.nbytes()); });
    const double gather =
        seconds(comm, [&] { comm.all_gather_into(whole, shard, "<bench>").wait(); });
    const double reduce =
        seconds(comm, [&] { comm.reduce_scatter_into(shard, whole, "<bench>").wait(); });
    shard.fill_(1);
    if (round < 0) continue;
    timings.copy.push_back(copy);
    timings.all_gather.push_back(gather);
    timings.reduce_scatter.push_back(reduce);
  }
  return timings;
}

void print(const std::string& backend, int world, int64_t bytes, const Timings& timings) {
  const double copy = fsdp::median(timings.copy);
  const auto line = [&](const char* what, const std::vector<double>& times) {
    const double time = fsdp::median(times);
    std::printf("%-7s  %5d  %-14s  %8.3f  %6.2f  %10.2f\n", backend.c_str(), world, what,
                time * 1e3, static_cast<double>(bytes) / time / 1e9, copy / time);
  };
  line("copy", timings.copy);
  line("all_gather", timings.all_gather);
  line("reduce_scatter", timings.reduce_scatter);
  std::fflush(stdout);
}

int bench(const Settings& settings) {
  std::printf("%-7s  %5s  %-14s  %8s  %6s  %10s\n", "backend", "world", "", "ms", "GB/s",
              "of copying");
  std::fflush(stdout);
  for (const auto& backend : settings.backends) {
    for (const int world : settings.worlds) {
      const auto part = static_cast<int64_t>(settings.megabytes * 1e6 / 4 / world);
      const auto result = fsdp::launch(world, [&](const fsdp::RankContext& context) {
        at::set_num_threads(1);
        fsdp::CommunicatorOptions options;
        options.backend = backend;
        auto comm = fsdp::Communicator::create(context, options);
        const auto timings = measure(*comm, part, settings.rounds);
        if (context.rank == 0) print(backend, world, part * world * 4, timings);
        return 0;
      });
      if (!result.ok()) {
        const auto& failed = result.ranks[static_cast<size_t>(result.first_failure)];
        std::fprintf(stderr, "fsdp bench: %s\n", failed.text().c_str());
        return 1;
      }
    }
  }
  std::printf("medians of %d rounds; %.1f MB in the larger tensor; GB/s counts all of it\n",
              settings.rounds, settings.megabytes);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Measures the time of the transports' collectives and of plain copies.",
               "fsdp bench --transport");
  fsdp::add_numbers(app, "--world", settings.worlds, {1, 64}, "numbers of ranks (default 2,4)");
  app.add_option("--backend", settings.backends, "shm, gloo or both (default both)")
      ->delimiter(',')
      ->check(fsdp::one_of("--backend", {"shm", "gloo"}));
  fsdp::add_number(app, "--megabytes", settings.megabytes, fsdp::NumberRange<double>{0.001, 4000},
                   "size of the larger tensor (default 32)");
  fsdp::add_number(app, "--rounds", settings.rounds, fsdp::NumberRange<int64_t>{1, 100'000},
                   "timed rounds (default 51)");
  return fsdp::run_program("fsdp bench", [&] {
    fsdp::parse_command_line(app, {argv + 1, argv + argc});
    return bench(settings);
  });
}
