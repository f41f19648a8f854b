#pragma once

#include <memory>

namespace fsdp {

class EventLog;

// For ./fsdp check --trace: writes the timeline of one test to the file that FSDP_TRACE names. It
// is the first test that fails, or the last test that ran if none fails. Does nothing without
// FSDP_TRACE.
namespace kept_timeline {

// Keeps the events of the run that has just ended, unless it issued no collective.
void keep(const std::shared_ptr<EventLog>& log);

// A property of GoogleTest's result: set if the timeline in the file is that of this test.
inline constexpr const char* kWritten = "timeline";

// Call this when a test has ended: writes the events that its last run has left.
void end_test(const char* suite, const char* test, bool failed);

}  // namespace kept_timeline
}  // namespace fsdp
