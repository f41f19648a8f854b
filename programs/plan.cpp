#include <base/whole_file.h>
#include <command_line/run_program.h>
#include <memory/counting_allocator.h>
#include <plan/settings.h>
#include <plan/stack.h>
#include <plan/text.h>
#include <planning/plan.h>

#include <cstdio>

namespace fsdp {
namespace {

void print_search(const PlanSettings& settings) {
  const TrainConfig& base = settings.configs.front();
  const auto found = search(base, settings.machine, *settings.memory, layout_of, traces_of);
  for (const Candidate& candidate : found) {
    const Plan& plan = candidate.plan;
    const int64_t peak = plan.peak.bytes.total, over = peak - *settings.memory;
    if (settings.json) {
      auto line = json_of(plan, candidate.config);
      line["options"] = candidate.options;
      line["fits"] = over <= 0;
      std::printf("%s\n", line.dump().c_str());
      continue;
    }
    const std::string verdict = over <= 0 ? "fits" : "over by " + bytes_text(over);
    char time[32] = "";
    if (plan.time)
      std::snprintf(time, sizeof time, "%9.4g s", static_cast<double>(plan.time->total()) * 1e-9);
    std::printf("%12s%s  %-18s %s\n", bytes_text(peak).c_str(), time, verdict.c_str(),
                candidate.options.c_str());
  }
}

void print_plans(const PlanSettings& settings) {
  std::vector<Plan> plans;
  for (const TrainConfig& config : settings.configs) {
    plans.push_back(plan_of(config, settings.machine));
    const Plan& plan = plans.back();
    std::printf("%s\n", settings.json ? json_of(plan, config).dump().c_str()
                                      : text_of(plan, config, settings.machine).c_str());
    std::fflush(stdout);
  }
  if (!settings.svg.empty()) write_whole_file(settings.svg, chart_of(plans, settings.configs));
}

}  // namespace
}  // namespace fsdp

int main(int argc, char** argv) {
  return fsdp::run_program("fsdp plan", [&] {
    const auto settings = fsdp::parse_plan_options({argv + 1, argv + argc});
    fsdp::counting_allocator::install();
    at::set_num_threads(settings.configs.front().ranks.threads);
    if (settings.memory) {
      fsdp::print_search(settings);
    } else {
      fsdp::print_plans(settings);
    }
    return 0;
  });
}
