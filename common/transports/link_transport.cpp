#include <comm/ledger.h>
#include <transports/backends.h>

#include <algorithm>
#include <map>
#include <utility>

namespace fsdp {
namespace {

// Computes when the simulated link has moved the bytes of each call. Every rank has a table of its
// own, computed from what all ranks have published, so the tables are equal.
class Timetable {
 public:
  Timetable(const Link& link, std::shared_ptr<Ledger> ledger)
      : link_(link), ranks_(ledger->group().size), ledger_(std::move(ledger)) {}

  void add(const Call& call) {
    times_[call.sequence].took = link_.time(call.operation, call.bytes, ranks_);
  }

  // Returns the times at which the bytes of call `sequence` start and end to move [ns]. The bytes
  // of earlier calls, which all ranks have published, move first. Must be called once for each
  // call.
  std::pair<int64_t, int64_t> take(uint64_t sequence) {
    for (auto next = times_.begin(); next != times_.end() && next->first <= sequence; ++next) {
      Time& time = next->second;
      if (time.done == 0) free_ = time.done = start(next->first) + time.took;
    }
    const Time time = times_.extract(sequence).mapped();
    return {time.done - time.took, time.done};
  }

 private:
  struct Time {
    int64_t took{};
    int64_t done{};  // [ns] time at which the call ends; 0 until it is known
  };

  int64_t start(uint64_t sequence) {
    ledger_->check(sequence);
    int64_t start = free_;
    for (int rank = 0; rank < ranks_; ++rank)
      start = std::max(start, ledger_->at(rank, sequence).issued_at);
    return start;
  }

  Link link_;
  int ranks_;
  std::shared_ptr<Ledger> ledger_;
  std::map<uint64_t, Time> times_;  // by sequence: times of the calls that have not been waited for
  int64_t free_{};  // [ns] time at which the link is free again: the latest `done` so far
};

class LinkTransfer final : public Transfer {
 public:
  LinkTransfer(std::unique_ptr<Transfer> inner, uint64_t sequence,
               std::shared_ptr<Timetable> timetable, std::shared_ptr<Clock> clock)
      : inner_(std::move(inner)),
        sequence_(sequence),
        timetable_(std::move(timetable)),
        clock_(std::move(clock)) {}

  uint64_t address() const override { return inner_->address(); }
  void start() override { inner_->start(); }

  void complete() override {
    moved_ = timetable_->take(sequence_);
    clock_->sleep_until(moved_->second);
    inner_->complete();
  }

  std::optional<std::pair<int64_t, int64_t>> moved() const override { return moved_; }

 private:
  std::unique_ptr<Transfer> inner_;
  uint64_t sequence_;
  std::shared_ptr<Timetable> timetable_;
  std::shared_ptr<Clock> clock_;
  std::optional<std::pair<int64_t, int64_t>> moved_;
};

class LinkTransport final : public Transport {
 public:
  LinkTransport(std::shared_ptr<Transport> inner, std::shared_ptr<Timetable> timetable,
                std::shared_ptr<Clock> clock)
      : inner_(std::move(inner)), timetable_(std::move(timetable)), clock_(std::move(clock)) {}

  std::unique_ptr<Transfer> begin(const Collective& collective) override {
    timetable_->add(collective.call);
    return std::make_unique<LinkTransfer>(inner_->begin(collective), collective.call.sequence,
                                          timetable_, clock_);
  }

  c10::Allocator* allocator() override { return inner_->allocator(); }
  void wait_for_readers() override { inner_->wait_for_readers(); }

 private:
  std::shared_ptr<Transport> inner_;
  std::shared_ptr<Timetable> timetable_;
  std::shared_ptr<Clock> clock_;
};

}  // namespace

std::shared_ptr<Transport> make_link_transport(std::shared_ptr<Transport> inner, const Link& link,
                                               std::shared_ptr<Ledger> ledger,
                                               std::shared_ptr<Clock> clock) {
  auto timetable = std::make_shared<Timetable>(link, std::move(ledger));
  return std::make_shared<LinkTransport>(std::move(inner), std::move(timetable), std::move(clock));
}

}  // namespace fsdp
