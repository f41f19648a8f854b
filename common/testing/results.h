#pragma once

#include <string>

namespace fsdp::results {

// Writes one line of JSON to `file` for each of the events below, and stops GoogleTest from
// printing. The grader reads results only from this file, so printed text cannot fake a result.
//
//   {"event":"plan","tests":["T2_3_unshard.gathers/W3", ...]}    first: the tests that will run
//   {"event":"start","suite":"T2_3_unshard","name":"gathers/W3"}
//   {"event":"end","suite":"T2_3_unshard","name":"gathers/W3","outcome":"failed",
//    "text":"test_x.cpp:12: Failure\n...","milliseconds":12,"timeline":false,"timed_out":false,
//    "printed":345}
//
// outcome: "passed"; "failed", with the texts of the first four failures; "not started", with the
// function that is still to be written, if the test reached a todo(); "skipped", with the reason.
// timeline: whether the file that FSDP_TRACE names now has the timeline of this test.
// timed_out: whether a rank was still running at its time limit.
// printed: the position in standard output, if that is a file: how much was printed so far.
//
// Call write_to() after InitGoogleTest() and before RUN_ALL_TESTS(). Programs that this process
// executes do not inherit `file`.
void write_to(int file);

// Closes the file that write_to() got. A forked rank calls close() before it runs anything else, so
// that the code under test cannot write results.
void close();

// Makes the outcome of the running test "not started" if the test is then skipped. `what` is the
// function that is still to be written.
void mark_not_started(const std::string& what);

// Records that a rank of the running test was still running at its time limit.
void mark_timed_out();

}  // namespace fsdp::results
