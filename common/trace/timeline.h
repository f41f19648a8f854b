#pragma once

#include <trace/event_log.h>

#include <string>
#include <vector>

namespace fsdp {

// The events of the ranks of one run.
struct Timeline {
  std::string title;    // what was run: for example "fsdp of small, 4 ranks"
  std::string failure;  // why the run ended early; empty if it did not
  std::vector<std::vector<Event>> ranks;
};

// Makes a timeline of the events that `log` keeps.
Timeline timeline_of(const EventLog& log, std::string title, std::string failure);

// Returns a text with one line for each event of all ranks, in the order in which the events began.
std::string text_timeline(const Timeline& timeline);

// Returns the timeline in Chrome's trace event format, which Perfetto opens. Each rank is a process
// in it, with threads for computation and communication and with counters of live bytes by class.
std::string chrome_timeline(const Timeline& timeline);

// Returns an HTML page that shows the timeline and needs no other file and no network.
std::string html_timeline(const Timeline& timeline);

// Returns the function that makes the kind of timeline that the extension of `path` names:
// text_timeline for .txt, chrome_timeline for .json, html_timeline for .html. Throws
// std::invalid_argument for another extension.
using TimelineWriter = std::string (*)(const Timeline&);
TimelineWriter timeline_writer(const std::string& path);

namespace timeline_detail {

// Returns the earliest begin of all events, from which viewers count times; 0 if there are no
// events.
int64_t origin(const Timeline& timeline);

// Returns the events for which live bytes were sampled, in the order of the samples. These are all
// events that have ended, except those of EventKind::flight.
std::vector<Event> samples(const std::vector<Event>& events);

// Returns for each event the lane (0, 1, 2, ...) that shows it. The lanes are chosen so that the
// flights (transfers of collectives) in one lane do not overlap. Returns 0 for all other events.
std::vector<size_t> flight_lanes(const std::vector<Event>& events);

}  // namespace timeline_detail
}  // namespace fsdp
