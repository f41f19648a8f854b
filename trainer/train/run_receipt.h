#pragma once

#include <comm/communicator.h>
#include <config/train_config.h>
#include <diff/hash_recorder.h>
#include <launch/rank_context.h>
#include <receipt/receipt.h>

#include <optional>
#include <string>

// The receipt of a run (--receipt). While the run trains, each rank writes the hashes of the events
// that the receipt samples into a folder beside it.
namespace fsdp {

std::string folder_of_ranks(const TrainConfig& config);  // config.reports.receipt + ".ranks"
// Returns a function that selects the events of the receipt; null, for all events, if the run
// writes none.
HashRecorder::Select events_of_receipt(const TrainConfig& config);

// Returns a receipt with what the ranks have recorded so far of `steps`, or of all steps. Throws
// std::runtime_error, which names the file, if the file of a rank can't be read.
Receipt recorded_receipt(const TrainConfig& config, const RankContext& context,
                         std::optional<StepRange> steps = std::nullopt);

// Collective; call it after the last step. On rank 0, makes the receipt of the ranks' files, and
// removes the folder. Returns a line that reports the receipt and its root. Throws
// std::runtime_error, which names the file, on rank 0, if the file of a rank can't be read or the
// receipt can't be written or signed.
std::string write_run_receipt(const TrainConfig& config, const RankContext& context,
                              Communicator& comm);

}  // namespace fsdp
