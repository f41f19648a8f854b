#pragma once

#include <memory>

namespace fsdp {

class EventLog;

// The timeline of a test, for ./fsdp check --trace: written to the file that FSDP_TRACE names, if
// it is set. The first test that fails has it; if none does, the last one that ran.
namespace kept_timeline {

// Of the run that has just ended. A run without a collective takes no other's place.
void keep(const std::shared_ptr<EventLog>& log);

// When a test has ended: its name, and whether it failed.
void end_test(const char* suite, const char* test, bool failed);

}  // namespace kept_timeline
}  // namespace fsdp
