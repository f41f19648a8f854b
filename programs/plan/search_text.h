#pragma once

#include <plan/settings.h>

#include <string>
#include <vector>

namespace fsdp {

// If no plan of a run fits into memory: other values of two options, with each of which a plan
// fits. 0: no such value was found.
struct Ways {
  // A value of --world: the smallest one with which a plan fits, among 2, 4, 8, ... times the
  // number of ranks.
  int ranks{};
  // A value of --seq: the largest one with which a plan fits, among 1/2, 1/4, ... of the tokens of
  // a row.
  int64_t seq{};
};

// Returns the candidates among which a user may choose, in the order of `found`, the result of
// search(): those that fit into `memory` and whose peak has fewer bytes than that of all candidates
// before them. If none fits, returns the first five of `found`, which are the smallest; of
// candidates that differ only in --limit, it returns only the first one.
std::vector<Candidate> worth_a_choice(const std::vector<Candidate>& found, int64_t memory);

// Returns what ./fsdp plan --search prints, in lines of at most 100 columns: the run, the options
// that were tried, the table of worth_a_choice(), and the command of the first candidate. If no
// candidate fits, advice from `ways` takes the place of the command.
std::string text_of_search(const PlanSettings& settings, const std::vector<Candidate>& found,
                           const Ways& ways);

}  // namespace fsdp
