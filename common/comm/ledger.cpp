#include <comm/collective_error.h>
#include <comm/diagnosis.h>
#include <comm/ledger.h>

#include <algorithm>
#include <iomanip>
#include <sstream>

namespace fsdp {

void Ledger::publish(const PublishedCall& call) {
  if (call.call.sequence >= kRing) {
    const uint64_t former = call.call.sequence - kRing;
    if (!rings_.reached(rank_, former, Stage::waited_for)) {
      throw std::logic_error("rank " + std::to_string(group().world_rank(rank_)) +
                             ": collective #" + std::to_string(former) + ' ' +
                             at(rank_, former).call.text() + group().text() +
                             " was never waited for, and " + std::to_string(kRing) +
                             " more have been called: wait for each handle");
    }
    wait_for_all(former, Stage::waited_for);
  }
  note(call);
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
  // The others, if they are on their way, belong into the explanation.
  constexpr std::chrono::milliseconds kPatience{1000};
  for (int other = 0; other < group().size; ++other)
    rings_.comes(other, sequence, Stage::published, std::min(timeout_, kPatience));
  throw CollectiveError(tell_difference(sequence, group(), rings_.histories()));
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

void Ledger::wait(int rank, uint64_t sequence, Stage stage) const {
  if (rings_.comes(rank, sequence, stage, timeout_)) return;
  throw CollectiveError(timeout_text(rank, sequence));
}

std::string Ledger::timeout_text(int rank, uint64_t sequence) const {
  std::ostringstream out;
  out << call_of_rank(group(), rank_, at(rank_, sequence).call) << " timed out after " << std::fixed
      << std::setprecision(1) << std::chrono::duration<double>(timeout_).count() << " s: rank "
      << group().world_rank(rank);
  if (rings_.reached(rank, sequence, Stage::waited_for)) {
    out << " has not finished it";
  } else if (rings_.reached(rank, sequence, Stage::published)) {
    out << " called it but has not waited for it";
  } else {
    const std::string last = rings_.last_call(rank);
    out << " has not called it; "
        << (last.empty() ? "it has called none yet" : "its last call was " + last);
  }
  out << '\n' << tell_missing(sequence, rank, group(), rings_.histories());
  return out.str();
}

}  // namespace fsdp
