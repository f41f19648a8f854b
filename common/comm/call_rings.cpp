#include <base/processes.h>
#include <comm/bell.h>
#include <comm/call_rings.h>
#include <comm/diagnosis.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <thread>

namespace fsdp {
namespace {

// How far a rank is with the calls that share one entry: grows with the sequence, then the stage,
// so that "has reached" is one comparison, even if the entry already serves a later call.
uint64_t progress(uint64_t sequence, Stage stage) {
  constexpr uint64_t kStages = 256;
  return sequence * kStages + static_cast<uint64_t>(stage);
}

}  // namespace

struct alignas(128) CallRings::Entry {
  PublishedCall call;
  std::atomic<uint64_t> progress;  // guards the call: written before, read after
};

struct alignas(128) CallRings::RankPage {
  Bell bell;  // rung by this rank at every change of a stage
  std::atomic<uint64_t> published;
  uint64_t counted;                // of the world's page alone: see count_call()
  std::atomic<RankStatus> status;  // likewise
  std::atomic<pid_t> watched;      // likewise; 0: nobody
  Entry ring[kLength];
};

size_t CallRings::bytes(int world_size) {
  return kLevels * static_cast<size_t>(world_size) * sizeof(RankPage);
}

CallRings::CallRings(void* shared, const Group& group)
    : pages_(static_cast<RankPage*>(shared)),
      group_(group),
      // With a core for each rank the others are about to come; else they may need this very core.
      spins_(static_cast<unsigned>(group.world_size) <= std::thread::hardware_concurrency() ? 200
                                                                                            : 20) {}

CallRings::RankPage& CallRings::page(Level level, int rank) const {
  return pages_[static_cast<int>(level) * group_.world_size + group_.world_rank(rank)];
}

CallRings::Entry& CallRings::entry(int rank, uint64_t sequence) const {
  return page(rank).ring[sequence % kLength];
}

void CallRings::publish(int rank, const PublishedCall& call) {
  const uint64_t sequence = call.call.sequence;
  Entry& mine = entry(rank, sequence);
  mine.call = call;
  mine.progress.store(progress(sequence, Stage::published), std::memory_order_release);
  // In one order for all ranks: of two that publish and then compare, one sees the other.
  page(rank).published.store(sequence + 1, std::memory_order_seq_cst);
  page(rank).bell.ring();
}

void CallRings::reach(int rank, uint64_t sequence, Stage stage) {
  entry(rank, sequence).progress.store(progress(sequence, stage), std::memory_order_release);
  page(rank).bell.ring();
}

bool CallRings::reached(int rank, uint64_t sequence, Stage stage) const {
  const uint64_t theirs = entry(rank, sequence).progress.load(std::memory_order_acquire);
  return theirs >= progress(sequence, stage);
}

bool CallRings::comes(int rank, uint64_t sequence, Stage stage,
                      std::chrono::milliseconds limit) const {
  for (int i = 0; i < spins_; ++i) {
    if (reached(rank, sequence, stage)) return true;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  // If a sleep takes much longer than it was to take, this process was stopped.
  constexpr std::chrono::nanoseconds kNap{std::chrono::milliseconds(100)};
  std::chrono::nanoseconds left = limit;
  Bell& bell = page(rank).bell;
  bell.listen();
  for (;;) {
    const uint32_t count = bell.count();
    const bool gone = status(rank).gone();  // read first: a rank is gone after its last call
    if (reached(rank, sequence, stage) || gone || left.count() <= 0) break;
    const auto nap = std::min(left, kNap);
    const auto before = std::chrono::steady_clock::now();
    bell.sleep(count, nap);
    const std::chrono::nanoseconds slept = std::chrono::steady_clock::now() - before;
    if (slept >= nap) look_for_process(rank);
    left -= std::min(slept, nap);
  }
  bell.leave();
  return reached(rank, sequence, stage);
}

const PublishedCall& CallRings::at(int rank, uint64_t sequence) const {
  return entry(rank, sequence).call;
}

void CallRings::set_status(int rank, RankStatus status) {
  page(Level::world, rank).status.store(status, std::memory_order_release);
  for (size_t level = 0; level < kLevels; ++level)
    page(static_cast<Level>(level), rank).bell.ring();
  pages_->bell.ring();  // for absent()
}

std::optional<int> CallRings::absent(std::chrono::milliseconds limit) const {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  Bell& bell = pages_->bell;
  std::optional<int> found;
  bell.listen();
  for (;;) {
    const uint32_t count = bell.count();
    const auto left = deadline - std::chrono::steady_clock::now();
    for (int rank = 0; rank < group_.size && !found; ++rank) {
      if (!status(rank).runs()) found = rank;
    }
    if (found || left.count() <= 0) break;
    bell.sleep(count, left);
  }
  bell.leave();
  return found;
}

RankStatus CallRings::status(int rank) const {
  return page(Level::world, rank).status.load(std::memory_order_acquire);
}

void CallRings::look_for_process(int rank) const {
  RankPage& of_rank = page(Level::world, rank);
  const pid_t process = of_rank.watched.load(std::memory_order_acquire);
  if (process == 0 || !status(rank).runs() || process_runs(process)) return;
  of_rank.status.store({RankStatus::Kind::vanished, 0}, std::memory_order_release);
}

void CallRings::watch(int rank, pid_t process) {
  page(Level::world, rank).watched.store(process, std::memory_order_release);
}

uint64_t CallRings::count_call(int rank) {
  return page(Level::world, rank).counted++;
}

uint64_t CallRings::published(int rank) const {
  return page(rank).published.load(std::memory_order_seq_cst);
}

std::string CallRings::last_call(int rank) const {
  constexpr std::array<const char*, kLevels> groups{"", " of its shard group", " of its replicas"};
  std::string text;
  int64_t latest = std::numeric_limits<int64_t>::min();
  for (size_t level = 0; level < kLevels; ++level) {
    const RankPage& calls = page(static_cast<Level>(level), rank);
    const uint64_t count = calls.published.load(std::memory_order_seq_cst);
    if (count == 0) continue;
    const PublishedCall& last = calls.ring[(count - 1) % kLength].call;
    if (last.issued_at < latest) continue;
    latest = last.issued_at;
    text = "#" + std::to_string(count - 1) + ' ' + last.call.name() + groups.at(level);
  }
  return text;
}

std::vector<CallHistory> CallRings::histories() const {
  std::vector<CallHistory> histories(static_cast<size_t>(group_.size));
  for (int rank = 0; rank < group_.size; ++rank) {
    const uint64_t count = published(rank);
    histories[static_cast<size_t>(rank)].status = status(rank);
    for (uint64_t sequence = count - std::min(count, kLength); sequence < count; ++sequence)
      histories[static_cast<size_t>(rank)].calls.push_back(at(rank, sequence).call);
  }
  return histories;
}

}  // namespace fsdp
