#include <trace/event_log.h>

#include <atomic>

namespace fsdp {

struct EventLog::Page {
  std::atomic<uint64_t> added;

  Event* slots() { return reinterpret_cast<Event*>(this + 1); }
  static size_t bytes(size_t slots) { return sizeof(Page) + slots * sizeof(Event); }
};

// create() allocates one slot more than `kept` for each rank, because a rank may be killed while it
// overwrites the oldest event: this event is then not one of the last `kept` ones.
std::shared_ptr<EventLog> EventLog::create(int world_size, size_t kept) {
  return std::shared_ptr<EventLog>(new EventLog(world_size, kept + 1));
}

EventLog::EventLog(int world_size, size_t slots)
    : world_size_(world_size),
      slots_(slots),
      memory_("the log of events", static_cast<size_t>(world_size) * Page::bytes(slots)) {}

EventLog::Page& EventLog::page(int rank) const {
  return *reinterpret_cast<Page*>(memory_.base() + rank * Page::bytes(slots_));
}

Event& EventLog::slot(int rank, uint64_t number) const {
  return page(rank).slots()[number % slots_];
}

uint64_t EventLog::add(int rank, const Event& event) {
  std::atomic<uint64_t>& added = page(rank).added;
  const uint64_t number = added.load(std::memory_order_relaxed);
  slot(rank, number) = event;
  added.store(number + 1, std::memory_order_release);
  return number;
}

void EventLog::finish(int rank, uint64_t number, const Event& event) {
  if (number < dropped(rank)) return;
  Event& place = slot(rank, number);
  Event unfinished = event;
  unfinished.end = 0;
  place = unfinished;
  std::atomic_ref<int64_t>(place.end).store(event.end, std::memory_order_release);
}

Event EventLog::at(int rank, uint64_t number) const {
  return slot(rank, number);
}

std::vector<Event> EventLog::events(int rank) const {
  std::vector<Event> events;
  for (uint64_t number = dropped(rank); number < added(rank); ++number)
    events.push_back(slot(rank, number));
  return events;
}

uint64_t EventLog::added(int rank) const {
  return page(rank).added.load(std::memory_order_acquire);
}

uint64_t EventLog::dropped(int rank) const {
  const uint64_t kept = slots_ - 1;
  return added(rank) > kept ? added(rank) - kept : 0;
}

}  // namespace fsdp
