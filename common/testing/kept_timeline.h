#pragma once

#include <memory>

namespace fsdp {

class EventLog;

// For ./fsdp check --trace: writes timelines of tests to the file that FSDP_TRACE names. A test
// whose rank 0 issues no collective has no timeline. The timeline of each other test replaces the
// one in the file, until a test fails. So the file keeps the timeline of the first of these tests
// that failed or, if none failed, of the last one. If FSDP_TRACE is not set, nothing is written.
namespace kept_timeline {

// Keeps `log`, the events of a run of ranks that has just ended, so that end_test() can write its
// timeline. Does nothing if rank 0 of the run issued no collective, or if FSDP_TRACE is not set.
void keep(const std::shared_ptr<EventLog>& log);

// The name of a property of GoogleTest's result. A test gets this property when its timeline is
// written to the file of FSDP_TRACE, which a later test may overwrite.
inline constexpr const char* kWritten = "timeline";

// Called when a test has ended. Writes the events that keep() kept last to the file of FSDP_TRACE,
// unless this file has the timeline of a failed test.
void end_test(const char* suite, const char* test, bool failed);

}  // namespace kept_timeline
}  // namespace fsdp
