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
// - Recording: if FSDP_RECORD names a folder, launch() and start() without a launcher create it.
//   They write a file `command` for ./fsdp replay into it and, for each run, a folder 0, 1, ..., in
//   which each rank R writes a file rank-R. This file has each call and each output, written as
//   they come, so it is usable up to the last output, however the rank ends.
// - Replay: if FSDP_REPLAY names the file rank-R of folder N, call N of launch() or start(),
//   counted from 0, runs rank R in the calling process, without the other ranks, and ends the
//   process. The rank throws CollectiveError if it issues another call than the recorded one, or
//   waits for an output that was not recorded.

// Does nothing if FSDP_RECORD is not set. Creates the folder that it names, with the file
// `command`, unless an earlier run of this process has created it; then creates the folder of this
// run inside. Must be called before the ranks of the run are forked. Throws std::invalid_argument
// if the folder that FSDP_RECORD names exists already and was not created by this process.
void begin_recording();
// record_rank() must be called when a rank starts, end_recording() when it ends, both in the rank's
// process. `failure` is empty if the rank succeeded.
void record_rank(int rank);
void end_recording(const std::string& failure) noexcept;
// Returns a line for the user with the size of all files of the latest run, and the folder DIR that
// FSDP_RECORD names: "recorded, 1.2 MB: ./fsdp replay DIR --rank R". Returns "" if the latest run
// was not recorded.
std::string recorded_text();
// Returns the number of the latest run of this process, counted from 0; -1 if that run was not
// recorded.
int recorded_run_number();

// If FSDP_REPLAY names a file of this run, opens the file and returns the rank to run alone;
// otherwise returns nothing. Throws std::runtime_error, which names the file, if it is not a
// recording of this build.
std::optional<int> take_replay();
bool replays();  // returns whether this process replays a rank
// Returns the collective whose recorded output a replayed rank is writing now; null: none.
const Collective* receiving();
// Empty functions, on which a debugger can set breakpoints. replay_breakpoint_begin() is called
// when the replayed rank begins, replay_breakpoint_stuck() when it cannot continue.
void replay_breakpoint_begin();
void replay_breakpoint_stuck();

// Returns `inner` if this process neither records nor replays a rank. Otherwise returns a transport
// that passes all calls to `inner` and records or replays each collective.
std::shared_ptr<Transport> recorded(std::shared_ptr<Transport> inner);
// Makes the Ledger of a replayed rank. In this Ledger, every other rank has issued the same calls
// as the replayed rank.
std::shared_ptr<Ledger> make_replayed_ledger(const CallRings& rings, int rank,
                                             std::chrono::milliseconds timeout);

}  // namespace fsdp
