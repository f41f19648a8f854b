#include <base/whole_file.h>
#include <command_line/run_program.h>
#include <memory/counting_allocator.h>
#include <plan/chart.h>
#include <plan/search_progress.h>
#include <plan/search_text.h>
#include <plan/settings.h>
#include <plan/stack.h>
#include <plan/text.h>

#include <algorithm>
#include <cstdio>

namespace fsdp {
namespace {

class SearchRun {
 public:
  explicit SearchRun(const PlanSettings& settings) : settings_(settings) {}

  std::vector<Candidate> found() { return found(base_, settings_.searched); }

  // Returns with how many ranks, or with how short rows, a plan of the run fits into memory.
  Ways ways() {
    Ways ways;
    for (int world = 2 * base_.ranks.world;
         ways.ranks == 0 && world <= kMostTimes * base_.ranks.world; world *= 2)
      if (fits_on(world)) ways.ranks = world;
    TrainConfig config = base_;
    const bool any_seq = config.data.kind != DataKind::modular;
    while (any_seq && ways.seq == 0 && config.training.seq > base_.training.seq / kMostTimes &&
           config.training.seq > 1) {
      config.training.seq /= 2;
      if (fits(config)) ways.seq = config.training.seq;
    }
    return ways;
  }

  void end() { progress_.end(); }

 private:
  static constexpr int kMostTimes = 64;

  std::vector<Candidate> found(const TrainConfig& config, const Searched& searched) {
    return search(config, searched, settings_.machine,
                  {layout_of, traces_of, *settings_.memory,
                   [this](size_t /*planned*/) { progress_.planned(); }});
  }

  // Returns whether a search finds a plan of `config` that fits into memory. If the search may
  // change the rows of a microbatch and the batch, it only tries one row, which needs the least
  // memory.
  bool fits(TrainConfig config) {
    Searched searched = settings_.searched;
    if (searched.rows && searched.batch) {
      config.training.batch = config.training.microbatches;
      searched.rows = false;
    }
    const auto plans = found(config, searched);
    return !plans.empty() && plans.front().plan.fits(*settings_.memory);
  }
  bool fits_on(int world) {
    try {
      return fits(settings_.on(world));
    } catch (const UsageError&) {
      // The run can't have `world` ranks, for example because its batch can't be cut into so many
      // microbatches.
      return false;
    }
  }

  const PlanSettings& settings_;
  const TrainConfig& base_{settings_.configs.front()};
  SearchProgress progress_;
};

void print_json(const PlanSettings& settings, const std::vector<Candidate>& found) {
  for (const Candidate& candidate : found) {
    auto line = json_of(candidate.plan, candidate.config);
    line["options"] = candidate.options;
    line["fits"] = candidate.plan.fits(*settings.memory);
    if (candidate.plan.time) line["tokens_per_second"] = candidate.tokens_per_second();
    std::printf("%s\n", line.dump().c_str());
  }
}

void draw_search(const PlanSettings& settings, const std::vector<Candidate>& found) {
  std::vector<Bar> bars;
  for (const Candidate& candidate : worth_a_choice(found, *settings.memory))
    bars.push_back({std::to_string(bars.size() + 1), candidate.plan.peak.bytes});
  write_whole_file(settings.svg, chart_of(bars, settings.memory,
                                          "line of the table; bytes of rank 0 at the peak"));
}

void print_search(const PlanSettings& settings) {
  SearchRun run(settings);
  const TrainConfig& base = settings.configs.front();
  const auto found = run.found();
  if (found.empty())
    throw UsageError("--search: --batch " + std::to_string(base.training.batch) +
                     " can't be cut into equal microbatches for " +
                     std::to_string(base.ranks.world) + " ranks; give another --batch");
  const bool fits = found.front().plan.fits(*settings.memory);
  const Ways ways = fits || settings.json ? Ways{} : run.ways();
  run.end();
  if (settings.json) {
    print_json(settings, found);
  } else {
    std::fputs(text_of_search(settings, found, ways).c_str(), stdout);
  }
  if (!settings.svg.empty()) draw_search(settings, found);
}

void print_plans(const PlanSettings& settings) {
  std::vector<Bar> bars;
  for (const TrainConfig& config : settings.configs) {
    const Plan plan = plan_of(config, settings.machine);
    bars.push_back({std::to_string(config.ranks.world), plan.peak.bytes});
    std::printf("%s\n", settings.json ? json_of(plan, config).dump().c_str()
                                      : text_of(plan, config, settings).c_str());
    std::fflush(stdout);
  }
  if (!settings.svg.empty())
    write_whole_file(settings.svg,
                     chart_of(bars, settings.memory, "ranks; bytes of rank 0 at the peak"));
}

}  // namespace
}  // namespace fsdp

int main(int argc, char** argv) {
  return fsdp::run_program("fsdp plan", [&] {
    const auto settings = fsdp::parse_plan_options({argv + 1, argv + argc});
    fsdp::counting_allocator::install();
    at::set_num_threads(settings.configs.front().ranks.threads);
    if (settings.search) {
      fsdp::print_search(settings);
    } else {
      fsdp::print_plans(settings);
    }
    return 0;
  });
}
