#include <base/processes.h>
#include <comm/call_rings.h>
#include <comm/collective_error.h>
#include <comm/diagnosis.h>
#include <comm/shared_condition.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <limits>
#include <thread>

namespace fsdp {
namespace {

// Returns a number for the progress of a rank that has reached `stage` of call `sequence`. The
// number grows with the sequence, then with the stage. So one comparison shows whether a rank has
// reached a stage of a call, even if its ring has overwritten the call with a later one.
uint64_t progress(uint64_t sequence, Stage stage) {
  constexpr uint64_t kStages = 256;
  return sequence * kStages + static_cast<uint64_t>(stage);
}

}  // namespace

struct alignas(128) CallRings::Entry {
  PublishedCall call;
  // A rank writes `call` before it stores `progress`; the other ranks load `progress` before they
  // read `call`.
  std::atomic<uint64_t> progress;
};

struct alignas(128) CallRings::RankHead {
  // condition.notify_all() is called when this rank reaches a stage of a call, or when its status
  // changes.
  SharedCondition condition;
  uint64_t counted;  // number of calls of count_call() for this rank so far
  // `taken`: how many sets of rings this rank has acquired so far; `given_back`: how many of them
  // it has released.
  uint64_t taken, given_back;
  std::atomic<RankStatus> status;
  std::atomic<pid_t> watched;  // the process that register_process() has set for this rank; 0: none
  Lost lost;                   // the call in which this rank failed; valid only if is_lost is true
  bool is_lost;
};

// The ranks of this host, which share the memory: the lowest of them, and their number. Both are 0
// until set_local_ranks() is called; until then, all ranks of the world share the memory.
struct alignas(128) CallRings::LocalRanks {
  int lowest;
  int ranks;
};

// Which Communicator uses a set of rings. Communicator i uses set i if i < kSets. For each later
// Communicator, the lowest rank of this host chooses a set that all ranks of the host have
// released.
struct alignas(128) CallRings::Set {
  // Number of the Communicator that uses this set, if the number is kSets or more; 0: none of these
  // yet.
  std::atomic<uint64_t> communicator;
  // Number of ranks of this host that have released this set of rings: release_set().
  std::atomic<int> given_back;
};

struct alignas(128) CallRings::RankPage {
  std::atomic<uint64_t> published;
  Entry ring[kLength];
};

size_t CallRings::bytes(int world_size) {
  const size_t of_rank = sizeof(RankHead) + kSets * kLevels * sizeof(RankPage);
  return sizeof(LocalRanks) + kSets * sizeof(Set) + static_cast<size_t>(world_size) * of_rank;
}

CallRings::CallRings(void* shared, const Group& group, int set)
    : here_(static_cast<LocalRanks*>(shared)),
      heads_(reinterpret_cast<RankHead*>(here_ + 1)),
      sets_(reinterpret_cast<Set*>(heads_ + group.world_size)),
      pages_(reinterpret_cast<RankPage*>(sets_ + kSets)),
      group_(group),
      set_(set),
      // If this host has a core for each of its ranks, the other ranks arrive soon, so this rank
      // looks often before it sleeps. Otherwise it sleeps early, because another rank may need its
      // core.
      spins_(static_cast<unsigned>(ranks_of_host()) <= std::thread::hardware_concurrency() ? 200
                                                                                           : 20) {}

int CallRings::ranks_of_host() const {
  return here_->ranks > 0 ? here_->ranks : group_.world_size;
}

void CallRings::set_local_ranks(const std::vector<int>& ranks) {
  *here_ = {ranks.at(0), static_cast<int>(ranks.size())};
}

CallRings::RankHead& CallRings::head(int rank) const {
  return heads_[group_.world_rank(rank)];
}

CallRings::RankPage& CallRings::page(int set, Level level, int world_rank) const {
  const auto row = static_cast<size_t>(set) * kLevels + static_cast<size_t>(level);
  return pages_[row * static_cast<size_t>(group_.world_size) + static_cast<size_t>(world_rank)];
}

CallRings::Entry& CallRings::entry(int rank, uint64_t sequence) const {
  return page(rank).ring[sequence % kLength];
}

void CallRings::publish(int rank, const PublishedCall& call) {
  const uint64_t sequence = call.call.sequence;
  Entry& mine = entry(rank, sequence);
  mine.call = call;
  mine.progress.store(progress(sequence, Stage::published), std::memory_order_release);
  // This store is sequentially consistent: if two ranks publish and then compare, at least one of
  // them sees the call of the other.
  page(rank).published.store(sequence + 1, std::memory_order_seq_cst);
  head(rank).condition.notify_all();
}

void CallRings::advance(int rank, uint64_t sequence, Stage stage) {
  entry(rank, sequence).progress.store(progress(sequence, stage), std::memory_order_release);
  head(rank).condition.notify_all();
}

bool CallRings::reached(int rank, uint64_t sequence, Stage stage) const {
  const uint64_t theirs = entry(rank, sequence).progress.load(std::memory_order_acquire);
  return theirs >= progress(sequence, stage);
}

// Waits until `done` returns true, for at most `limit`. Calls `done` whenever the condition of
// `rank` is notified, and at least every kNap. A sleep counts at most its planned length towards
// `limit`: if it took longer, this process was stopped meanwhile.
template <class Done>
void CallRings::sleep_until(const Done& done, RankHead& rank, std::chrono::nanoseconds limit) {
  constexpr std::chrono::nanoseconds kNap{std::chrono::milliseconds(100)};
  rank.condition.enter();
  for (;;) {
    const uint32_t count = rank.condition.count();
    if (done() || limit.count() <= 0) break;
    const auto nap = std::min(limit, kNap);
    const auto before = std::chrono::steady_clock::now();
    rank.condition.sleep(count, nap);
    const std::chrono::nanoseconds slept = std::chrono::steady_clock::now() - before;
    if (slept >= nap) look_for_process(rank);
    limit -= std::min(slept, nap);
  }
  rank.condition.exit();
}

bool CallRings::wait_for(int rank, uint64_t sequence, Stage stage,
                         std::chrono::milliseconds limit) const {
  for (int i = 0; i < spins_; ++i) {
    if (reached(rank, sequence, stage)) return true;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  const auto done = [&] {
    // The status is read before the stage, because a rank that is gone reaches no further stage.
    const bool gone = status(rank).gone();
    return reached(rank, sequence, stage) || gone;
  };
  sleep_until(done, head(rank), limit);
  return reached(rank, sequence, stage);
}

const PublishedCall& CallRings::at(int rank, uint64_t sequence) const {
  return entry(rank, sequence).call;
}

void CallRings::set_status(int rank, RankStatus status) {
  head(rank).status.store(status, std::memory_order_release);
  head(rank).condition.notify_all();
  // Notifies the condition of rank 0 too, because ranks in find_ended_rank() and acquire_set()
  // sleep on it.
  heads_->condition.notify_all();
}

std::optional<int> CallRings::find_ended_rank(std::chrono::milliseconds limit) const {
  std::optional<int> found;
  const auto done = [&] {
    for (int rank = 0; rank < group_.size && !found; ++rank) {
      if (!status(rank).runs()) found = rank;
    }
    return found.has_value();
  };
  sleep_until(done, *heads_, limit);
  return found;
}

RankStatus CallRings::status(int rank) const {
  return head(rank).status.load(std::memory_order_acquire);
}

void CallRings::look_for_process(RankHead& rank) {
  const pid_t process = rank.watched.load(std::memory_order_acquire);
  RankStatus seen = rank.status.load();
  if (process == 0 || !seen.runs() || process_runs(process)) return;
  // compare_exchange_strong() replaces only the status `seen`: if the process that forked the rank
  // has meanwhile written how the rank ended, that status stays.
  rank.status.compare_exchange_strong(seen, {RankStatus::Kind::vanished, 0});
}

void CallRings::register_process(int rank, pid_t process) {
  head(rank).watched.store(process, std::memory_order_release);
}

// Returns the set of rings that Communicator number `communicator` uses. If it uses no set yet and
// `chooses` is true, chooses a set that no Communicator uses any more. Returns nothing if there is
// no such set, or if the lowest rank of this host, which chooses, has not chosen one yet.
std::optional<int> CallRings::set_of(uint64_t communicator, bool chooses) {
  if (communicator < kSets) return static_cast<int>(communicator);
  for (int i = 0; i < kSets; ++i) {
    const int set = static_cast<int>((communicator + static_cast<uint64_t>(i)) % kSets);
    if (sets_[set].communicator == communicator) return set;
    if (!chooses || sets_[set].given_back != ranks_of_host()) continue;
    for (size_t row = 0; row < kLevels * static_cast<size_t>(group_.world_size); ++row) {
      RankPage& former = (&page(set, Level::world, 0))[row];
      former.published = 0;
      for (Entry& entry : former.ring)
        entry.progress = 0;
    }
    sets_[set].given_back = 0;
    sets_[set].communicator = communicator;
    heads_->condition.notify_all();
    return set;
  }
  return std::nullopt;
}

CallRings::Slot CallRings::acquire_set(int rank, std::chrono::milliseconds limit) {
  RankHead& mine = head(rank);
  const std::string who = "rank " + std::to_string(rank) + ": ";
  if (mine.taken - mine.given_back == kSets) {
    throw std::logic_error(who + "cannot create another Communicator: it has " +
                           std::to_string(kSets) +
                           " Communicators, the most at a time; let models share one, or destroy "
                           "one first");
  }
  std::optional<int> set;
  const auto done = [&] {
    const bool gone = status(here_->lowest).gone();
    set = set_of(mine.taken, rank == here_->lowest);
    return set || gone;
  };
  sleep_until(done, *heads_, limit);
  if (set) return {mine.taken++, *set};
  throw CollectiveError(who + "cannot create Communicator " + std::to_string(mine.taken + 1) +
                        ": other ranks still have an earlier one, or have not created this one; "
                        "all ranks must create and destroy theirs in the same order");
}

void CallRings::release_set(int rank, int set) {
  ++head(rank).given_back;
  ++sets_[set].given_back;
  heads_->condition.notify_all();
}

uint64_t CallRings::count_call(int rank) {
  return head(rank).counted++;
}

uint64_t CallRings::published(int rank) const {
  return page(rank).published.load(std::memory_order_seq_cst);
}

std::string CallRings::last_call(int rank) const {
  constexpr std::array<const char*, kLevels> groups{"", " of its shard group", " of its replicas"};
  std::string text;
  int64_t latest = std::numeric_limits<int64_t>::min();
  for (size_t i = 0; i < kSets * kLevels; ++i) {
    const size_t level = i % kLevels;
    const RankPage& calls =
        page(static_cast<int>(i / kLevels), static_cast<Level>(level), group_.world_rank(rank));
    const uint64_t count = calls.published.load(std::memory_order_seq_cst);
    if (count == 0) continue;
    const PublishedCall& last = calls.ring[(count - 1) % kLength].call;
    if (last.issued_at < latest) continue;
    latest = last.issued_at;
    text = "#" + std::to_string(count - 1) + ' ' + last.call.name() + groups.at(level);
  }
  return text;
}

void CallRings::note_lost(int rank, std::optional<uint64_t> sequence) {
  head(rank).lost = {group_, set_, sequence};
  head(rank).is_lost = true;
}

std::optional<CallRings::Lost> CallRings::lost(int rank) const {
  if (!head(rank).is_lost) return std::nullopt;
  return head(rank).lost;
}

std::string CallRings::serialize(int rank) const {
  std::string bytes;
  for (size_t i = 0; i < kSets * kLevels; ++i) {
    const RankPage& calls = page(static_cast<int>(i / kLevels), static_cast<Level>(i % kLevels),
                                 group_.world_rank(rank));
    if (calls.published == 0) continue;
    bytes += static_cast<char>(i);
    bytes.append(reinterpret_cast<const char*>(&calls), sizeof calls);
  }
  return bytes;
}

void CallRings::deserialize(int rank, const std::string& pages) {
  for (size_t at = 0; at + sizeof(RankPage) < pages.size(); at += 1 + sizeof(RankPage)) {
    const auto i = static_cast<unsigned char>(pages[at]);
    if (i >= kSets * kLevels) return;
    RankPage& calls = page(i / static_cast<int>(kLevels), static_cast<Level>(i % kLevels),
                           group_.world_rank(rank));
    std::memcpy(static_cast<void*>(&calls), pages.data() + at + 1, sizeof calls);
  }
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
