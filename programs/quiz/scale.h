#pragma once

#include <plan/settings.h>
#include <quiz/quiz.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fsdp {

// The functions of this header answer the questions of scale. They make plans of the question's run
// with plan_of(), as ./fsdp plan does.

// settings_with() and plan_with() return the settings and the plan of the question's run, with the
// options `more` added.
PlanSettings settings_with(const Question& question, const std::vector<std::string>& more = {});
Plan plan_with(const Question& question, const std::vector<std::string>& more = {});
const PhaseCost& cost_of(const Plan& plan, Phase phase);

// Returns {"ranks": W}. W is the largest number of ranks on which the collectives of backward take
// no longer than the computing of backward. Requires: the question's options have no --world.
// Throws std::logic_error if there is no such limit up to 65536 ranks.
nlohmann::json most_ranks(const Question& question);

// Returns {"rows": R}. R is the smallest number of rows per rank with which the rank waits in
// forward only as long as with 512 rows. Requires: the question's options have no --rows.
nlohmann::json fewest_rows(const Question& question);

// What the model's last block costs in forward. The costs decide with how many rows the computing
// of a block takes as long as the all-gather of the next one.
struct BlockCost {
  int64_t ranks{};  // number of ranks that gather the block
  // The cost of the all-gather of the block. `received`: [bytes] that a rank receives. `gather`:
  // [ns] that the all-gather takes.
  int64_t received{}, gather{};
  int64_t flops_of_row{};  // floating-point operations of the block for each row of the batch
};
BlockCost block_cost(const Question& question);

// The plan of the question's run with one sharding strategy: full, grad_op, or hybrid with a
// replica on each host.
struct Contender {
  std::string name;
  Plan plan;
  double milliseconds{};  // predicted time of a step
  bool fits{};            // whether the plan's peak is below question.amount gigabytes
};
std::vector<Contender> contenders(const Question& question);
// Returns {"fastest": name, "milliseconds": t}: the name and the step time of the fastest Contender
// whose `fits` is true. Throws std::logic_error if no Contender fits.
nlohmann::json fastest_strategy(const Question& question);

// Returns how many bytes a rank writes into a checkpoint: its shards of the parameters and of the
// optimizer's moments.
int64_t checkpoint_bytes(const Plan& plan);
// Returns {"seconds": t}, the time to write a checkpoint if each host writes question.amount
// gigabytes per second.
nlohmann::json checkpoint_time(const Question& question);

}  // namespace fsdp
