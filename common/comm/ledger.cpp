#include <comm/collective_error.h>
#include <comm/diagnosis.h>
#include <comm/ledger.h>

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <vector>

namespace fsdp {

std::chrono::milliseconds Ledger::patience() const {
  return std::min(timeout_, std::chrono::milliseconds(1000));
}

void Ledger::require_waited_for(uint64_t sequence) const {
  if (sequence < kRing) return;
  const uint64_t former = sequence - kRing;
  if (rings_.reached(rank_, former, Stage::waited_for)) return;
  throw std::logic_error(call_of_rank(group(), rank_, at(rank_, former).call) +
                         " was never waited for: its Handle was destroyed; keep the Handle "
                         "that a collective returns, and call its wait()");
}

void Ledger::publish(const PublishedCall& call) {
  require_waited_for(call.call.sequence);
  if (call.call.sequence >= kRing) wait_for_all(call.call.sequence - kRing, Stage::waited_for);
  publish_unchecked(call);
}

void Ledger::compare(uint64_t sequence) {
  for (int rank = 0; rank < group().size; ++rank) {
    if (rings_.published(rank) > sequence) require_agreement(rank, sequence);
  }
}

void Ledger::check(uint64_t sequence) {
  for (int rank = 0; rank < group().size; ++rank) {
    wait(rank, sequence, Stage::published);
    require_agreement(rank, sequence);
  }
}

void Ledger::require_agreement(int rank, uint64_t sequence) const {
  if (agree(at(rank_, sequence).call, at(rank, sequence).call)) return;
  // Before the throw, waits at most patience() for each rank that has not issued this call yet, so
  // that the message can show what the rank called.
  for (int other = 0; other < group().size; ++other)
    rings_.wait_for(other, sequence, Stage::published, patience());
  throw CollectiveError(describe_mismatch(sequence, group(), rings_.histories()));
}

void Ledger::wait_for_all(uint64_t sequence, Stage stage) {
  for (int rank = 0; rank < group().size; ++rank)
    wait(rank, sequence, stage);
}

bool Ledger::all_reached(uint64_t sequence, Stage stage) const {
  for (int rank = 0; rank < group().size; ++rank) {
    if (!rings_.reached(rank, sequence, stage)) return false;
  }
  return true;
}

void Ledger::wait(int rank, uint64_t sequence, Stage stage) {
  if (rings_.wait_for(rank, sequence, stage, timeout_)) return;
  // If `rank` still runs, it may itself be waiting for a rank that does not run: then the error
  // names that other rank.
  for (int other = 0; other < group().size && rings_.status(rank).runs(); ++other) {
    if (!rings_.status(other).runs() && !rings_.reached(other, sequence, stage)) rank = other;
  }
  std::ostringstream reason;
  if (!rings_.status(rank).gone()) {
    reason << " timed out after " << std::fixed << std::setprecision(1)
           << std::chrono::duration<double>(timeout_).count() << " s";
  }
  throw missing(reason.str(), rank, sequence);
}

CollectiveError Ledger::library_error(const char* library, uint64_t sequence,
                                      const std::exception& error) {
  const std::string reason = std::string(" failed in ") + library + " (" + message_of(error) + ')';
  if (const auto absent = rings_.find_ended_rank(patience()))
    return missing(reason, *absent, sequence);
  std::vector<int> unfinished;
  for (int rank = 0; rank < group().size; ++rank) {
    if (rank != rank_ && !rings_.reached(rank, sequence, Stage::waited_for))
      unfinished.push_back(rank);
  }
  if (unfinished.size() == 1) return missing(reason, unfinished[0], sequence);
  rings_.note_lost(rank_, sequence);
  return fsdp::library_error(library, group(), rank_, at(rank_, sequence).call, error);
}

std::string Ledger::absent() {
  rings_.note_lost(rank_, std::nullopt);
  const auto absent = rings_.find_ended_rank(patience());
  if (!absent) return "";
  return ": rank " + std::to_string(group().world_rank(*absent)) + ' ' +
         rings_.status(*absent).text();
}

CollectiveError Ledger::missing(const std::string& reason, int rank, uint64_t sequence) {
  rings_.note_lost(rank_, sequence);
  return CollectiveError(missing_rank(rings_, rank_, reason, rank, sequence));
}

std::string missing_rank(const CallRings& rings, int self, const std::string& reason, int rank,
                         uint64_t sequence) {
  const Group& group = rings.group();
  std::string text = call_of_rank(group, self, rings.at(self, sequence).call) + reason + ": rank " +
                     std::to_string(group.world_rank(rank));
  const std::string last = rings.last_call(rank);
  const RankStatus status = rings.status(rank);
  if (status.kind == RankStatus::Kind::silent) {
    text += ' ' + status.text();
  } else if (status.gone()) {
    text += ' ' + status.text() +
            (last.empty() ? " before its first collective" : " after collective " + last);
  } else if (rings.reached(rank, sequence, Stage::waited_for)) {
    text += " has not finished it";
  } else if (rings.reached(rank, sequence, Stage::published)) {
    text += " called it but has not waited for it";
  } else {
    text += " has not called it; " +
            (last.empty() ? "it has called none yet" : "its last call was " + last);
  }
  return text + '\n' + describe_missing_rank(sequence, rank, group, rings.histories());
}

}  // namespace fsdp
