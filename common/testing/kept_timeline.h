#pragma once

#include <memory>

namespace fsdp {

class EventLog;

// For ./fsdp check --trace: writes the timeline of one test to the file that FSDP_TRACE names: of
// the first test that fails, or of the last test if none fails. Does nothing without FSDP_TRACE.
namespace kept_timeline {

// Keeps the events of the run that has just ended, unless it issued no collective.
void keep(const std::shared_ptr<EventLog>& log);

// A property of GoogleTest's result: set if the file has the timeline of this test.
inline constexpr const char* kWritten = "timeline";

// Call it when a test has ended. Writes the events of the run that keep() kept last.
void end_test(const char* suite, const char* test, bool failed);

}  // namespace kept_timeline
}  // namespace fsdp
