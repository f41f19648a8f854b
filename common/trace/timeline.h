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

// One line per event of all ranks, by the time they began, of at most 100 columns.
std::string text_timeline(const Timeline& timeline);

// In Chrome's trace event format, which Perfetto opens: a process per rank, with threads for
// computation and communication and counters of live bytes by class.
std::string chrome_timeline(const Timeline& timeline);

// A page that needs nothing else.
std::string html_timeline(const Timeline& timeline);

// The one of the three that belongs to the extension of `path`: .txt, .json or .html. Throws
// std::invalid_argument for another.
using TimelineWriter = std::string (*)(const Timeline&);
TimelineWriter timeline_writer(const std::string& path);

namespace timeline_detail {

// The first begin of all events: where viewers' time begins.
int64_t origin(const Timeline& timeline);

// The events whose live bytes were taken, by the time of that.
std::vector<Event> samples(const std::vector<Event>& events);

// For each event the lane that shows it, 0, 1, 2, ..., so that flights in one lane don't overlap;
// 0 for all others.
std::vector<size_t> flight_lanes(const std::vector<Event>& events);

}  // namespace timeline_detail
}  // namespace fsdp
