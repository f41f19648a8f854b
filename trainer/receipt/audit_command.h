#pragma once

#include <receipt/recomputation.h>

#include <set>
#include <string>
#include <vector>

namespace fsdp {

// Names what an auditor uses besides the receipt.
struct AuditSources {
  std::string program;               // the program that trains
  std::string checkpoints;           // the folder with checkpoints of the run; empty: there is none
  std::vector<std::string> options;  // options of ./fsdp train in place of the run's
};

// Returns the names of the options that `words` give: "text" for "--text" and "--text=FILE".
std::set<std::string> names_in(const std::vector<std::string>& words);

// Returns the command that computes `piece` again, in one process, and writes the hashes of all
// events into the folder `hashes`. It begins with the checkpoint of the piece's first step, which
// must be there, or if this is step 0, as the run began.
std::vector<std::string> audit_command(const AuditSources& sources, const Receipt& receipt,
                                       const Recomputation& piece, const std::string& hashes);

// Returns "step 3, microbatch 5" or "steps 1 to 3".
std::string text_of(const Recomputation& piece);

// Returns "made by rank 1 on host-b".
std::string makers(const Receipt& receipt, const std::vector<int>& ranks);

}  // namespace fsdp
