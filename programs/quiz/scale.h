#pragma once

#include <plan/settings.h>
#include <quiz/quiz.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fsdp {

// The answers to the questions of scale. Each one is found by plans of the question's run, which
// plan_of() makes, as ./fsdp plan does.

// Return the settings and the plan of the question's run with the options `more` in addition.
PlanSettings settings_with(const Question& question, const std::vector<std::string>& more = {});
Plan plan_with(const Question& question, const std::vector<std::string>& more = {});
const PhaseCost& cost_of(const Plan& plan, Phase phase);

// Returns {"ranks": W}. W is the largest number of ranks on which the links need at most as long
// for the collectives of backward as a rank computes in backward. The question's options have no
// --world. Throws std::logic_error if this is so even on 65536 ranks.
nlohmann::json most_ranks(const Question& question);

// Returns {"rows": R}. R is the smallest number of rows of a rank with which the rank waits in
// forward for as long as with 512 rows. The question's options have no --rows.
nlohmann::json fewest_rows(const Question& question);

// The cost of the last block in forward. It decides how many rows a rank needs.
struct BlockCost {
  int64_t ranks{};               // that gather the block
  int64_t received{}, gather{};  // [bytes] and [ns] of the all-gather of the block
  int64_t flops_of_row{};        // that the block computes for each row
};
BlockCost block_cost(const Question& question);

// The plan of the question's run with one strategy: full, grad_op, or hybrid with a replica on each
// host.
struct Contender {
  std::string name;
  Plan plan;
  double milliseconds{};  // of a step
  bool fits{};            // its peak is below question.amount gigabytes
};
std::vector<Contender> contenders(const Question& question);
// Returns {"fastest": name, "milliseconds": t} for the fastest contender that fits. Throws
// std::logic_error if none fits.
nlohmann::json fastest_strategy(const Question& question);

// Returns how many bytes a rank writes into a checkpoint: its shards of the parameters and of the
// moments.
int64_t checkpoint_bytes(const Plan& plan);
// Returns {"seconds": t}, the time to write a checkpoint if each host writes question.amount
// gigabytes per second.
nlohmann::json checkpoint_time(const Question& question);

}  // namespace fsdp
