#pragma once

#include <plan/settings.h>
#include <quiz/quiz.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fsdp {

// The answers to the questions of scale. Each one is found by plans of the question's run, which
// plan_of() makes, as ./fsdp plan does.

// Return the settings and the plan of the question's run, with more options.
PlanSettings settings_with(const Question& question, const std::vector<std::string>& more = {});
Plan plan_with(const Question& question, const std::vector<std::string>& more = {});
const PhaseCost& cost_of(const Plan& plan, Phase phase);

// {"ranks": W}: the largest W at which the links need at most the time of computing in backward.
// The question has no --world. Throws std::logic_error if there is no such W.
nlohmann::json most_ranks(const Question& question);

// {"rows": R}: the smallest number of rows of a rank from which on more rows do not shorten the
// waiting in forward. The question has no --rows. Throws std::logic_error if there is no such R.
nlohmann::json fewest_rows(const Question& question);

// The cost of the last block in forward. It decides how many rows a rank needs.
struct BlockCost {
  int64_t ranks{};               // that gather the block
  int64_t received{}, gather{};  // [bytes] and [ns] of the all-gather of the block
  int64_t flops_of_row{};        // that the block computes for each row
};
BlockCost block_cost(const Question& question);

// One of the strategies full, grad_op and hybrid (a replica on each host).
struct Contender {
  std::string name;
  Plan plan;
  double milliseconds{};  // of a step
  bool fits{};            // its peak is below question.amount gigabytes
};
std::vector<Contender> contenders(const Question& question);
// {"fastest": name, "milliseconds": t}: of the contenders that fit. Throws std::logic_error if none
// fits.
nlohmann::json fastest_strategy(const Question& question);

// [bytes] that a rank writes into a checkpoint: its shards of the parameters and of the moments.
int64_t checkpoint_bytes(const Plan& plan);
// {"seconds": t}: the time to write a checkpoint, of which each host writes question.amount
// gigabytes per second.
nlohmann::json checkpoint_time(const Question& question);

}  // namespace fsdp
