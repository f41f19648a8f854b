#pragma once

#include <trace/event_log.h>

#include <string>
#include <vector>

namespace fsdp {

// What the ranks of one run did.
struct Timeline {
  std::string title;    // "fsdp of small, 4 ranks"
  std::string failure;  // why the run ended early; empty if it did not
  std::vector<std::vector<Event>> ranks;
};

// The events that `log` keeps.
Timeline timeline_of(const EventLog& log, std::string title, std::string failure);

// One line for each event of all ranks, of at most 100 columns, in the order in which they began.
std::string text_timeline(const Timeline& timeline);

// Chrome's trace event format, which Perfetto opens: a process for each rank, with threads for
// computation and communication and counters of live bytes by class.
std::string chrome_timeline(const Timeline& timeline);

// A page that needs no other file and no network.
std::string html_timeline(const Timeline& timeline);

// Chooses one of the three by the extension of `path`: .txt, .json or .html. Throws
// std::invalid_argument for another extension.
using TimelineWriter = std::string (*)(const Timeline&);
TimelineWriter timeline_writer(const std::string& path);

namespace timeline_detail {

// The first begin of all events: where viewers' time begins.
int64_t origin(const Timeline& timeline);

// The events whose live bytes were taken, in the order in which they were taken.
std::vector<Event> samples(const std::vector<Event>& events);

// For each event the lane that shows it, 0, 1, 2, ..., so that flights in one lane don't overlap;
// 0 for all events that are no flights.
std::vector<size_t> flight_lanes(const std::vector<Event>& events);

}  // namespace timeline_detail
}  // namespace fsdp
