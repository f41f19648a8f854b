#pragma once

#include <receipt/recomputation.h>
#include <state/checkpoint.h>

#include <set>
#include <string>
#include <vector>

namespace fsdp {

// The program, the checkpoints and the options with which an auditor computes parts of a run again.
// The receipt of the run has everything else.
struct AuditSources {
  std::string program;               // path of the program that trains
  std::string checkpoints;           // folder with checkpoints of the run; empty: there is none
  std::vector<std::string> options;  // options of ./fsdp train that replace the run's own
};

// Returns the names of the options in `words`, the words of a command line: "text" for "--text" and
// for "--text=FILE".
std::set<std::string> names_in(const std::vector<std::string>& words);

// Throws std::invalid_argument if the settings that `checkpoint` stores are not those of the
// receipt's run: the checkpoint is of another run. The text names the step and the first setting
// that differs. As when a run resumes, the number of microbatches and of steps may differ.
// `folder`: the folder that the auditor gave to --checkpoint.
void require_checkpoint_of_run(const Receipt& receipt, const Checkpoint& checkpoint,
                               const std::string& folder);

// Returns the command line of ./fsdp train that computes `piece` again in one process and writes
// the hashes of all its events into the folder `hashes`. The command resumes from the checkpoint
// that the run saved before the first step of `piece`; this checkpoint must exist. If the first
// step is step 0, the command starts as the run did, without a checkpoint.
std::vector<std::string> audit_command(const AuditSources& sources, const Receipt& receipt,
                                       const Recomputation& piece, const std::string& hashes);

// Returns the steps of `piece`, counted from 1, as text: "step 3, microbatch 5" or "steps 1 to 3".
std::string text_of(const Recomputation& piece);

// Returns the given ranks of the run with their hosts, as text: "made by rank 1 on host-b".
std::string makers(const Receipt& receipt, const std::vector<int>& ranks);

}  // namespace fsdp
