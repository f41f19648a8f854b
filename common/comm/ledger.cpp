#include <comm/bell.h>
#include <comm/diagnosis.h>
#include <comm/ledger.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <iomanip>
#include <sstream>
#include <thread>

namespace fsdp {
namespace {

// How far a rank is with the calls that share one entry: grows with the sequence, then the stage,
// so that "has reached" is one comparison, also when the entry already serves a later call.
constexpr uint64_t kStages = 256;
uint64_t progress(uint64_t sequence, uint32_t stage) {
  return sequence * kStages + stage;
}

constexpr uint32_t kPublished = 1;
constexpr uint32_t kWaitedFor = 2;

constexpr std::chrono::milliseconds kPatience{1000};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), ::tolower);
  return text;
}

// "12 B", "1.0 MB"
std::string size_text(double bytes) {
  constexpr std::array<const char*, 5> units{"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  for (; bytes >= 1000 && unit + 1 < units.size(); ++unit)
    bytes /= 1000;
  std::ostringstream out;
  out << std::fixed << std::setprecision(unit == 0 ? 0 : 1) << bytes << ' ' << units.at(unit);
  return out.str();
}

}  // namespace

bool agree(const CallRecord& a, const CallRecord& b) {
  return a.sequence == b.sequence && a.operation == b.operation && a.dtype == b.dtype &&
         a.root == b.root && a.numel == b.numel && std::strcmp(a.unit, b.unit) == 0;
}

const char* to_string(Operation operation) {
  switch (operation) {
    case Operation::all_gather:
      return "all_gather";
    case Operation::reduce_scatter:
      return "reduce_scatter";
    case Operation::all_reduce:
      return "all_reduce";
    case Operation::broadcast:
      return "broadcast";
    case Operation::barrier:
      return "barrier";
  }
  return "?";
}

void CallRecord::set_unit(const std::string& name) {
  size_t length = std::min(name.size(), sizeof unit - 1);
  std::memset(unit, 0, sizeof unit);
  std::memcpy(unit, name.data() + name.size() - length, length);
}

std::string CallRecord::text() const {
  std::ostringstream out;
  out << to_string(operation) << ' ' << unit;
  if (operation == Operation::broadcast) out << " from rank " << root;
  if (operation != Operation::barrier) {
    const auto bytes = static_cast<double>(numel) * static_cast<double>(c10::elementSize(dtype));
    out << " (" << numel << " x " << lower(c10::toString(dtype)) << ", " << size_text(bytes) << ')';
  }
  return out.str();
}

struct alignas(128) Ledger::Entry {
  CallRecord record;
  std::atomic<uint64_t> progress;  // guards the record: written before, read after
};

struct alignas(128) Ledger::RankPage {
  Bell bell;  // rung by this rank at every change of a stage
  std::atomic<uint64_t> published;
  Entry ring[kRing];
};

size_t Ledger::bytes(int world_size) {
  return world_size * sizeof(RankPage);
}

Ledger::Ledger(void* shared, int rank, int world_size, std::chrono::milliseconds timeout)
    : pages_(static_cast<RankPage*>(shared)),
      rank_(rank),
      world_size_(world_size),
      // With a core for each rank the others are about to come; else they may need this very core.
      spins_(static_cast<unsigned>(world_size) <= std::thread::hardware_concurrency() ? 200 : 20),
      timeout_(timeout) {}

Ledger::Entry& Ledger::entry(int rank, uint64_t sequence) const {
  return pages_[rank].ring[sequence % kRing];
}

void Ledger::publish(const CallRecord& record) {
  Entry& mine = entry(rank_, record.sequence);
  if (record.sequence >= kRing) {
    uint64_t former = record.sequence - kRing;
    if (mine.progress.load() < progress(former, kWaitedFor)) {
      std::ostringstream out;
      out << "rank " << rank_ << ": collective #" << former << ' ' << mine.record.text()
          << " was never waited for, and " << kRing
          << " more have been called: wait for each handle";
      throw std::logic_error(out.str());
    }
    wait_for_all(former, kWaitedFor);
  }
  note(record);
}

void Ledger::note(const CallRecord& record) {
  Entry& mine = entry(rank_, record.sequence);
  mine.record = record;
  mine.progress.store(progress(record.sequence, kPublished), std::memory_order_release);
  // In one order for all ranks: of two that publish and then compare, one sees the other.
  pages_[rank_].published.store(record.sequence + 1, std::memory_order_seq_cst);
  pages_[rank_].bell.ring();
}

void Ledger::compare(uint64_t sequence) {
  for (int rank = 0; rank < world_size_; ++rank) {
    if (published(rank) > sequence) require_agreement(rank, sequence);
  }
}

void Ledger::check(uint64_t sequence) {
  for (int rank = 0; rank < world_size_; ++rank) {
    wait(rank, sequence, kPublished);
    require_agreement(rank, sequence);
  }
}

void Ledger::require_agreement(int rank, uint64_t sequence) const {
  if (agree(record(rank_, sequence), record(rank, sequence))) return;
  // The others, if they are on their way, belong into the story.
  for (int other = 0; other < world_size_; ++other)
    comes(other, sequence, kPublished, std::min(timeout_, kPatience));
  throw CollectiveError(tell_difference(sequence, histories()));
}

void Ledger::advance(uint64_t sequence) {
  entry(rank_, sequence).progress.fetch_add(1, std::memory_order_release);
  pages_[rank_].bell.ring();
}

void Ledger::wait_for_all(uint64_t sequence, uint32_t stage) {
  for (int rank = 0; rank < world_size_; ++rank)
    wait(rank, sequence, stage);
}

bool Ledger::all_reached(uint64_t sequence, uint32_t stage) const {
  for (int rank = 0; rank < world_size_; ++rank) {
    const uint64_t theirs = entry(rank, sequence).progress.load(std::memory_order_acquire);
    if (theirs < progress(sequence, stage)) return false;
  }
  return true;
}

const CallRecord& Ledger::record(int rank, uint64_t sequence) const {
  return entry(rank, sequence).record;
}

uint64_t Ledger::published(int rank) const {
  return pages_[rank].published.load(std::memory_order_seq_cst);
}

std::string Ledger::last_call(int rank) const {
  uint64_t count = published(rank);
  if (count == 0) return {};
  const CallRecord& last = record(rank, count - 1);
  return "#" + std::to_string(count - 1) + ' ' + to_string(last.operation) + ' ' + last.unit;
}

void Ledger::wait(int rank, uint64_t sequence, uint32_t stage) const {
  if (!comes(rank, sequence, stage, timeout_)) throw CollectiveError(timeout_text(rank, sequence));
}

bool Ledger::comes(int rank, uint64_t sequence, uint32_t stage,
                   std::chrono::milliseconds limit) const {
  const Entry& theirs = entry(rank, sequence);
  auto reached = [&] {
    return theirs.progress.load(std::memory_order_acquire) >= progress(sequence, stage);
  };
  for (int i = 0; i < spins_; ++i) {
    if (reached()) return true;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  auto deadline = std::chrono::steady_clock::now() + limit;
  Bell& bell = pages_[rank].bell;
  bell.listen();
  for (;;) {
    uint32_t count = bell.count();
    auto left = deadline - std::chrono::steady_clock::now();
    if (reached() || left.count() <= 0) break;
    bell.sleep(count, left);
  }
  bell.leave();
  return reached();
}

std::string Ledger::timeout_text(int rank, uint64_t sequence) const {
  const CallRecord& mine = record(rank_, sequence);
  std::ostringstream out;
  out << "rank " << rank_ << ": " << to_string(mine.operation) << ' ' << mine.unit
      << " (collective #" << sequence << ") timed out after " << std::fixed << std::setprecision(1)
      << std::chrono::duration<double>(timeout_).count() << " s: rank " << rank;
  uint64_t theirs = entry(rank, sequence).progress.load(std::memory_order_acquire);
  if (theirs >= progress(sequence, kWaitedFor)) {
    out << " has not finished it";
  } else if (theirs >= progress(sequence, kPublished)) {
    out << " called it but has not waited for it";
  } else {
    std::string last = last_call(rank);
    out << " has not called it; "
        << (last.empty() ? "it has called none yet" : "its last call was " + last);
  }
  out << '\n' << tell_missing(sequence, rank, histories());
  return out.str();
}

std::vector<CallHistory> Ledger::histories() const {
  std::vector<CallHistory> histories(static_cast<size_t>(world_size_));
  for (int rank = 0; rank < world_size_; ++rank) {
    const uint64_t count = published(rank);
    for (uint64_t sequence = count - std::min(count, kRing); sequence < count; ++sequence)
      histories[static_cast<size_t>(rank)].calls.push_back(record(rank, sequence));
  }
  return histories;
}

}  // namespace fsdp
