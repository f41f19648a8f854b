#pragma once

#include <comm/ledger.h>
#include <comm/transport.h>

#include <memory>
#include <optional>
#include <string>

namespace fsdp {

// Records what each rank of a run receives from the other ranks, so that one rank can run again
// alone, for example under a debugger. The outputs of its collectives are all that a rank gets from
// the other ranks.
// - Recording: if FSDP_RECORD names a folder, launch() and start() without a launcher create it,
//   with a file `command` for ./fsdp replay, and for each of their runs a folder 0, 1, ... with a
//   file rank-R of each rank. The file has each call and each output, written as they come: it is
//   usable up to the last output, however the rank ends.
// - Replay: if FSDP_REPLAY names such a file, the launch() or start() that has the number of its
//   folder runs this rank in the calling process, without the other ranks, and ends the process.
//   The rank throws CollectiveError if it issues another call than the recorded one, or waits for
//   an output that was not recorded.

// If FSDP_RECORD names a folder, creates it with the file `command`, unless an earlier run of this
// process has done so, and the folder of the run in it. Must be called before the ranks of the run
// are forked. Throws std::invalid_argument if the folder exists already and was not created by this
// process.
void begin_recording();
// Both functions must be called in the rank's process: record_rank() at its start, the other one at
// its end. `failure` is empty if the rank succeeded.
void record_rank(int rank);
void end_recording(const std::string& failure) noexcept;
// Returns "recorded, 1.2 MB: ./fsdp replay DIR --rank R"; empty if nothing is recorded.
std::string recorded_text();
// Returns the number of the run that was recorded last, from 0; -1 if it was not recorded.
int recorded_run_number();

// Returns the rank to run alone if this run is to be replayed, and opens its file. Throws
// std::runtime_error, which names the file, if it is not a recording of this build.
std::optional<int> take_replay();
bool replays();  // whether this process replays a rank
// Returns the collective whose recorded output a replayed rank is writing now; null: none.
const Collective* receiving();
// Empty functions for breakpoints. They are called when the replayed rank begins, and when it
// cannot continue.
void replay_breakpoint_begin();
void replay_breakpoint_stuck();

// Returns `inner` if this process neither records nor replays a rank. Otherwise returns a transport
// that passes all calls to `inner` and records or replays each collective.
std::shared_ptr<Transport> recorded(std::shared_ptr<Transport> inner);
// Makes the ledger of a replayed rank, in which every other rank has issued the same calls as this
// one.
std::shared_ptr<Ledger> make_replayed_ledger(const CallRings& rings, int rank,
                                             std::chrono::milliseconds timeout);

}  // namespace fsdp
