#include <plan/settings.h>
#include <plan/stack.h>
#include <quiz/scale.h>

#include <algorithm>
#include <stdexcept>

namespace fsdp {
namespace {

constexpr int64_t kManyRows = 1 << 9;
constexpr int64_t kManyRanks = 1 << 16;

// Returns the smallest number from 1 to `most` for which `holds` returns true. If it returns true
// for a number, it must do so for all larger numbers. Throws std::logic_error if there is no such
// number.
int64_t smallest(int64_t most, const std::function<bool(int64_t)>& holds) {
  int64_t below = 0, from = 1;
  while (!holds(from)) {
    if (from >= most) throw std::logic_error("a question of scale has no answer");
    below = from;
    from = std::min(2 * from, most);
  }
  while (from - below > 1) {
    const int64_t middle = below + (from - below) / 2;
    (holds(middle) ? from : below) = middle;
  }
  return from;
}

}  // namespace

PlanSettings settings_with(const Question& question, const std::vector<std::string>& more) {
  std::vector<std::string> words = question.options;
  words.insert(words.end(), more.begin(), more.end());
  return parse_plan_options(words);
}

Plan plan_with(const Question& question, const std::vector<std::string>& more) {
  const PlanSettings settings = settings_with(question, more);
  return plan_of(settings.configs.front(), settings.machine);
}

const PhaseCost& cost_of(const Plan& plan, Phase phase) {
  return plan.phases[static_cast<size_t>(phase)];
}

nlohmann::json most_ranks(const Question& question) {
  // The question fixes the rows of a rank, so a rank computes the same on any number of ranks, and
  // one trace of the model serves all plans.
  const TrainConfig alone = settings_with(question).configs.front();
  const ModelTraces traces = traces_of(alone, layout_of(alone));
  const int64_t too_many = smallest(kManyRanks, [&](int64_t ranks) {
    const PlanSettings settings = settings_with(question, {"--world", std::to_string(ranks)});
    const TrainConfig& config = settings.configs.front();
    const Plan plan = make_plan(config, layout_of(config), traces, settings.machine);
    const PhaseCost& backward = cost_of(plan, Phase::backward);
    return backward.links > backward.computing;
  });
  return {{"ranks", too_many - 1}};
}

nlohmann::json fewest_rows(const Question& question) {
  const auto waiting = [&](int64_t rows) {
    const Plan plan = plan_with(question, {"--rows", std::to_string(rows)});
    return cost_of(plan, Phase::forward).waiting;
  };
  const int64_t least = waiting(kManyRows);
  return {{"rows", smallest(kManyRows, [&](int64_t rows) { return waiting(rows) == least; })}};
}

BlockCost block_cost(const Question& question) {
  const PlanSettings settings = settings_with(question, {"--rows", "1"});
  const TrainConfig& config = settings.configs.front();
  const ShardLayout layout = layout_of(config);
  const size_t block = layout.units.size() - 1;
  BlockCost cost{.ranks = config.ranks.world};
  bool in_forward = false;
  const Schedule step = schedule(config, layout, 0, /*first=*/false, traces_of(config, layout));
  for (const auto& action : step.actions) {
    if (const auto* entered = std::get_if<Schedule::Enter>(&action))
      in_forward = entered->phase == Phase::forward;
    if (!in_forward) continue;
    const auto* part = std::get_if<Schedule::Compute>(&action);
    if (part != nullptr && part->unit == block) cost.flops_of_row += part->flops;
    const auto* call = std::get_if<Schedule::Issue>(&action);
    if (call == nullptr || call->unit != block) continue;
    cost.received = call->bytes_received();
    cost.gather = over(*settings.machine.between)(*call);
  }
  return cost;
}

std::vector<Contender> contenders(const Question& question) {
  const int ranks_per_host = settings_with(question).machine.ranks_per_host;
  const std::vector<std::vector<std::string>> strategies{
      {"full"}, {"grad_op"}, {"hybrid", "--shard-size", std::to_string(ranks_per_host)}};
  std::vector<Contender> all;
  for (std::vector<std::string> options : strategies) {
    const std::string name = options.front();
    options.insert(options.begin(), "--strategy");
    Contender one{name, plan_with(question, options)};
    one.milliseconds = static_cast<double>(one.plan.time.value().total()) * 1e-6;
    one.fits = static_cast<double>(one.plan.peak.bytes.total) < question.amount * 1e9;
    all.push_back(std::move(one));
  }
  return all;
}

nlohmann::json fastest_strategy(const Question& question) {
  std::vector<Contender> all = contenders(question);
  std::erase_if(all, [](const Contender& one) { return !one.fits; });
  if (all.empty()) throw std::logic_error("a question of scale has no answer");
  const Contender& best = *std::ranges::min_element(all, {}, &Contender::milliseconds);
  return {{"fastest", best.name}, {"milliseconds", best.milliseconds}};
}

int64_t checkpoint_bytes(const Plan& plan) {
  const auto& bytes = plan.bytes[static_cast<size_t>(Phase::optimizer)];
  return bytes[static_cast<size_t>(MemoryClass::shards)].value() +
         bytes[static_cast<size_t>(MemoryClass::optimizer_state)].value();
}

nlohmann::json checkpoint_time(const Question& question) {
  const int ranks_per_host = settings_with(question).machine.ranks_per_host;
  const auto bytes_of_host =
      static_cast<double>(ranks_per_host * checkpoint_bytes(plan_with(question)));
  return {{"seconds", bytes_of_host / (question.amount * 1e9)}};
}

}  // namespace fsdp
