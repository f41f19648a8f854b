#pragma once

#include <comm/ledger.h>
#include <comm/transport.h>

#include <memory>
#include <optional>
#include <string>

namespace fsdp {

// What each rank of a run receives, in files, so that one can run again, alone and under a
// debugger: its collectives are all that a rank learns from the others.
//
// If FSDP_RECORD names a folder, launch() and start() make it, with a file `command` for ./fsdp
// replay, and for their runs the folders 0, 1, ... with a file rank-R of each rank. It has each
// call and each output, written as they come: it is good up to the last output, however the rank
// ends. If FSDP_REPLAY names such a file, the launch() or start() of its number runs this rank in
// the calling process, without the others, and ends the process. A call that is not the recorded
// one, or never came, then throws CollectiveError.

void begin_recording();  // of a run; throws std::invalid_argument if its folder is there already
void record_rank(int rank);                               // in the rank
void end_recording(const std::string& failure) noexcept;  // the rank ends, well if it is empty
std::string recorded_text();  // "recorded, 1.2 MB: ./fsdp replay DIR --rank R", or empty

// The rank to run alone, if this run is replayed. Opens its file: throws std::runtime_error, which
// names it, if it is none.
std::optional<int> take_replay();
bool replays();  // whether this process runs such a rank
// For breakpoints: the rank begins, and can't go on.
void replay_breakpoint_begin();
void replay_breakpoint_stuck();

// `inner`, if this process is no such rank; else a transport that passes all to it, and records or
// replays each collective.
std::shared_ptr<Transport> recorded(std::shared_ptr<Transport> inner);
// For a rank that is replayed: every other rank has always called what this one calls.
std::shared_ptr<Ledger> make_replayed_ledger(const CallRings& rings, int rank,
                                             std::chrono::milliseconds timeout);

}  // namespace fsdp
