#pragma once

#include <plan/settings.h>

#include <string>
#include <vector>

namespace fsdp {

// Changes of a run of which no plan fits, each so that plans fit; 0: not found.
struct Ways {
  int ranks{};    // the smallest of 2, 4, 8, ... times the ranks
  int64_t seq{};  // the largest of 1/2, 1/4, ... of the tokens of a row
};

// Returns the candidates that are worth a choice, in the order of `found`, which search() returned:
// those that fit and have fewer bytes than all before them. If none fits, returns the five
// smallest, each with other settings than --limit.
std::vector<Candidate> worth_a_choice(const std::vector<Candidate>& found, int64_t memory);

// Returns the answer of --search as text, in 100 columns: the run, what was tried, the table of
// worth_a_choice(), and the command of the first candidate that fits. `ways`: if none fits.
std::string text_of_search(const PlanSettings& settings, const std::vector<Candidate>& found,
                           const Ways& ways);

}  // namespace fsdp
