#include <reproduce/gpt2xl.h>
#include <reproduce/number_text.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace fsdp {
namespace {

constexpr int64_t kSteps = 10;
constexpr int64_t kParameters = 2'127'208'000;
constexpr double kPublishedFirst = 10.8519020, kPublishedLast = 10.8702612,
                 kPublishedSum = 161786.334758;
// The value of train --receipt-sample: about one event in 64 is in the receipt, which then has less
// than a megabyte.
constexpr int64_t kReceiptSample = 64;
// [GiB] On the CPU, a run is not ok if all its processes together hold more memory.
constexpr double kMostMemory = 20;
// [min] On the CPU, the run with FSDP gets the verdict "NOT OK" if it takes longer.
constexpr double kMostMinutes = 60;

// Returns the training run of one mode, fsdp or single. In mode single, one process computes the
// batches of FSDP's ranks one after another. The process uses one thread, as each rank does,
// because the bits of a long sum depend on the number of threads.
LongRun run_of(const FullSettings& settings, const std::string& mode) {
  const std::string ranks = std::to_string(settings.world);
  const std::string options =
      "--mode " + mode + " --world " + ranks +
      " --model gpt2xl --recipe published --checkpoint-activations all" +
      (mode == "fsdp" ? " --prefetch off --step-in-backward on" : "") +
      (settings.device == "cuda" ? " --device cuda" : " --offload optimizer");
  return {mode + "-" + ranks, words(options), kSteps, 12 * kParameters,
          mode == "fsdp" ? kReceiptSample : 0};
}

double sum_of(const LongResult& run) {
  return run.result.last.at("param_sum");
}

bool same_bits(const LongResult& one, const LongResult& other) {
  for (size_t step = 0; step < kSteps; ++step)
    if (one.result.loss(step) != other.result.loss(step)) return false;
  return one.result.hash() == other.result.hash();
}

Line line_of(const std::string& mode, int world, const LongResult& run, const LongResult& other,
             bool on_cpu) {
  const double from_published =
      std::max({relative_difference(run.result.loss(0), kPublishedFirst),
                relative_difference(run.result.loss(kSteps - 1), kPublishedLast),
                relative_difference(sum_of(run), kPublishedSum)});
  const double memory = static_cast<double>(run.peak) / (1 << 30);
  bool ok = from_published <= kTolerance && same_bits(run, other);
  if (on_cpu) ok = ok && memory <= kMostMemory && run.swapped == 0;
  if (on_cpu && mode == "fsdp") ok = ok && run.result.seconds <= 60 * kMostMinutes;
  return {{mode, std::to_string(world), fixed(run.result.loss(0), 7),
           fixed(run.result.loss(kSteps - 1), 7), fixed(sum_of(run), 6), scientific(from_published),
           run.result.hash().substr(0, 16), on_cpu ? fixed(memory, 1) : "",
           fixed(run.result.seconds / 60, 0)},
          ok};
}

}  // namespace

Table full_table(const FullSettings& settings, const Full& full) {
  const bool on_cpu = settings.device == "cpu";
  Table table;
  table.title = "GPT-2 XL, 2,127,208,000 parameters, published recipe, 10 steps of AdamW";
  table.header = {"run",          "W",   "loss 0", "loss 9", "param sum", "published",
                  "param_sha256", "GiB", "min"};
  table.lines = {{{"published", "1", fixed(kPublishedFirst, 7), fixed(kPublishedLast, 7),
                   fixed(kPublishedSum, 6)},
                  {}},
                 {{"published FSDP", "8", "10.8519036", "10.8702623", "161786.335199"}, {}},
                 line_of("single", 1, full.single, full.fsdp, on_cpu),
                 line_of("fsdp", settings.world, full.fsdp, full.single, on_cpu)};
  table.notes.emplace_back(
      "A line is ok if losses 0 and 9 and the sum differ from the published ones of one GPU by at "
      "most 1e-6 (relative; `published` is the largest), and the ten losses and all parameters are "
      "the other run's to the bit. GiB is the most that all ranks hold together, anonymous and "
      "shared, sampled each second.");
  if (!on_cpu) return table;
  table.notes.emplace_back(
      "The optimizer's moments, 17 GB, lie in files; blocks recompute their activations; FSDP's "
      "units step in backward. A line is ok if no rank swaps, GiB is at most 20, and FSDP takes at "
      "most 60 minutes, checkpoints of 26 GB at every third step included.");
  return table;
}

Full run_full(const FullSettings& settings) {
  std::filesystem::create_directories(settings.folder);
  const auto run = [&](const std::string& mode) {
    return run_or_go_on(settings.train, settings.folder, run_of(settings, mode));
  };
  return {run("fsdp"), run("single")};
}

}  // namespace fsdp
