#pragma once

#include <comm/communicator.h>
#include <config/train_config.h>
#include <diff/hash_recorder.h>
#include <launch/rank_context.h>
#include <receipt/receipt.h>

#include <optional>
#include <string>

// The receipt of a run (--receipt). While the run trains, each rank writes the hashes of the events
// that the receipt samples to a file in a folder beside the receipt.
namespace fsdp {

// Returns the path of the folder with the ranks' files: config.reports.receipt + ".ranks".
std::string folder_of_ranks(const TrainConfig& config);
// Returns a function that selects the events of the receipt. Returns null, which selects all
// events, if the run writes no receipt.
HashRecorder::Select events_of_receipt(const TrainConfig& config);

// Returns a receipt of the events that the ranks have recorded so far; with `steps`, only of the
// events of these steps. Throws std::runtime_error, which names the file, if the file of a rank
// can't be read.
Receipt recorded_receipt(const TrainConfig& config, const RankContext& context,
                         std::optional<StepRange> steps = std::nullopt);

// Collective; call it after the last step. Rank 0 makes the receipt from the files of all ranks,
// removes the folder of these files, and returns a line that reports the receipt and its root. The
// other ranks return "". On rank 0, throws std::runtime_error, which names the file, if the file of
// a rank can't be read or if the receipt can't be written or signed.
std::string write_run_receipt(const TrainConfig& config, const RankContext& context,
                              Communicator& comm);

}  // namespace fsdp
