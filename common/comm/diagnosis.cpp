#include <base/text.h>
#include <comm/diagnosis.h>

#include <algorithm>
#include <optional>
#include <set>

namespace fsdp {
namespace {

// [characters] The width of the first column, which has the numbers of calls.
constexpr size_t kLabel = 12;
constexpr size_t kShownCalls = 5;  // how many of the last calls of each rank the table shows
// The most columns of calls that the table has side by side; further columns continue below them.
constexpr size_t kColumns = 3;
constexpr size_t kCell = 29;    // [characters] width of a column of calls
constexpr size_t kWidth = 100;  // [characters] the most in a line of an error text
// later() searches for a call of one rank among the next kLookout calls of another rank.
constexpr uint64_t kLookout = 4;

bool same(const Call& a, const Call& b) {
  return a.operation == b.operation && a.unit == b.unit;
}

std::string call_number(uint64_t sequence) {
  return "#" + std::to_string(sequence);
}

// Returns a list of ranks as a text such as "rank 2" or "ranks 0, 2 and 3".
std::string ranks_text(const std::vector<int>& ranks) {
  std::vector<std::string> numbers;
  for (const int rank : ranks)
    numbers.push_back(std::to_string(rank));
  return (ranks.size() == 1 ? "rank " : "ranks ") + in_a_row(numbers, "and");
}

std::string padded(std::string text, size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

// One side of a call: the ranks that have issued equal calls with one sequence number. The ranks
// that have not issued a call with this number yet form a side without a call.
struct Side {
  std::vector<int> ranks;  // numbers of the ranks in the world, ascending
  const Call* call;        // the call that these ranks have issued; null: they have issued none yet
  size_t first;            // the first of `ranks`, numbered in the group
};

// Groups the ranks by their call `sequence`. Returns the sides, the largest first; of two equally
// large sides, the one with the lowest rank comes first. The side without a call comes last.
std::vector<Side> sides_of(uint64_t sequence, const Group& group,
                           const std::vector<CallHistory>& ranks) {
  std::vector<Side> sides;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const Call* call = ranks[rank].find(sequence);
    const auto side = std::find_if(sides.begin(), sides.end(), [&](const Side& other) {
      return call && other.call ? agree(*call, *other.call) : call == other.call;
    });
    const int world_rank = group.world_rank(static_cast<int>(rank));
    if (side == sides.end()) {
      sides.push_back({{world_rank}, call, rank});
    } else {
      side->ranks.push_back(world_rank);
    }
  }
  std::stable_sort(sides.begin(), sides.end(), [](const Side& a, const Side& b) {
    if ((a.call == nullptr) != (b.call == nullptr)) return a.call != nullptr;
    return a.ranks.size() > b.ranks.size();
  });
  return sides;
}

// Returns how many calls after call `sequence` the rank issued `call`; nothing if `call` is not
// among the kLookout calls after call `sequence`.
std::optional<uint64_t> later(const CallHistory& rank, uint64_t sequence, const Call& call) {
  for (uint64_t ahead = 1; ahead <= kLookout; ++ahead) {
    const Call* found = rank.find(sequence + ahead);
    if (found && same(*found, call)) return ahead;
  }
  return std::nullopt;
}

// Predicts call `sequence` of `rank` from its earlier calls. Compares the calls before `sequence`
// with the calls before each earlier call, backwards until two differ. Returns the earlier call
// with the most equal calls before it, or null if none has at least two.
const Call* usual_next(uint64_t sequence, const CallHistory& rank) {
  const auto& calls = rank.calls;
  const Call* here = rank.find(sequence);
  const auto end = static_cast<size_t>(here - calls.data());
  const Call* found = nullptr;
  for (size_t next = end, longest = 1; next-- > 0;) {
    size_t run = 0;
    while (run < next && same(calls[next - 1 - run], calls[end - 1 - run]))
      ++run;
    if (run > longest) {
      longest = run;
      found = &calls[next];
    }
  }
  return found;
}

// Returns the likely cause of a difference in call `sequence` if exactly one side has made the call
// that usual_next() predicts; the text blames the other side. Otherwise returns "".
std::string cause_of_habit(uint64_t sequence, const Side& one, const Side& other,
                           const CallHistory& rank) {
  const Call* next = usual_next(sequence, rank);
  if (next == nullptr || same(*next, *one.call) == same(*next, *other.call)) return "";
  const Side& odd = same(*next, *one.call) ? other : one;
  const std::string who = ranks_text(odd.ranks);
  return who + " called " + odd.call->name() + " where " + next->name() +
         " came before: was the model called once more (an evaluation), or was a backward pass or "
         "a step left out, on " +
         who + " only?";
}

// Returns the likely cause of a difference if the calls of the two sides come from different
// functions (CallerScope), which all ranks must call together. Returns "" if both calls come from
// the same function, or from none.
std::string cause_of_callers(const Side& one, const Side& other) {
  const std::string caller = one.call->caller.str(), another = other.call->caller.str();
  if (caller == another) return "";
  if (caller.empty()) return cause_of_callers(other, one);
  return ranks_text(one.ranks) + " called " + caller + ", which " + ranks_text(other.ranks) +
         " did not call" + (another.empty() ? "" : ", but " + another) +
         ": all ranks must call it together";
}

std::string cause_of_threads(const Group& group, const std::vector<CallHistory>& ranks) {
  std::vector<int> several;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto& calls = ranks[rank].calls;
    if (std::any_of(calls.begin(), calls.end(),
                    [&](const Call& call) { return call.thread != calls[0].thread; }))
      several.push_back(group.world_rank(static_cast<int>(rank)));
  }
  if (several.empty()) return "";
  return "several threads of " + ranks_text(several) +
         " issue collectives, in an order that differs between ranks: let one thread issue all of "
         "them, or create a Communicator for each thread";
}

std::string calls_text(uint64_t count, const Call& first) {
  if (count == 1) return first.name();
  return std::to_string(count) + " calls, beginning with " + first.name();
}

std::string cause_of_difference(uint64_t sequence, const Side& usual, const Side& odd,
                                const std::vector<CallHistory>& ranks) {
  if (const auto cause = cause_of_callers(usual, odd); !cause.empty()) return cause;
  const std::string they = ranks_text(odd.ranks);
  const std::string others = ranks_text(usual.ranks);
  const std::string unit = odd.call->unit.str();
  if (same(*usual.call, *odd.call)) {
    if (usual.call->numel != odd.call->numel) {
      return unit + " has another size on " + they +
             ": was another model, wrap policy or world size sharded there?";
    }
    if (usual.call->dtype != odd.call->dtype) return unit + " has another dtype on " + they;
    return they + " took the data from another rank";
  }
  const CallHistory& usual_rank = ranks[usual.first];
  const CallHistory& odd_rank = ranks[odd.first];
  const bool outvoted = usual.ranks.size() > odd.ranks.size();
  std::string broken_habit = cause_of_habit(sequence, usual, odd, usual_rank);
  if (!outvoted && !broken_habit.empty()) return broken_habit;
  if (const auto ahead = later(usual_rank, sequence, *odd.call)) {
    const std::string calls = calls_text(*ahead, *usual.call);
    if (outvoted) return they + " left out " + calls;
    return others + " made " + calls + ", which " + they + " did not make";
  }
  if (const auto ahead = later(odd_rank, sequence, *usual.call)) {
    return they + " made " + calls_text(*ahead, *odd.call) + ", which " + others + " did not make";
  }
  if (!broken_habit.empty()) return broken_habit;
  const Call* before = sequence > 0 ? odd_rank.find(sequence - 1) : nullptr;
  if (outvoted && before && same(*before, *odd.call)) {
    const std::string missing = usual.call->unit.str();
    return they + " called " + odd.call->name() + " twice" +
           (odd_rank.has_called_for(missing) ? "" : ", or has no unit " + missing);
  }
  const std::string someone = outvoted ? they : "one side";
  if (usual.call->operation == odd.call->operation) {
    return someone + " left out or added a call, or runs its units in a different order";
  }
  if (usual.call->unit == odd.call->unit) {
    return outvoted ? they + " left out " + usual.call->name() + ", or called " + odd.call->name() +
                          " out of turn"
                    : "one side left out a call for " + unit + ", or made one out of turn";
  }
  return someone + " took another path through the program than the other ranks";
}

// The table of last calls in an error text: a line for each call, and a column for each set of
// ranks that issued the same calls.
class Table {
 public:
  Table(const Group& group, const std::vector<CallHistory>& ranks, uint64_t marked)
      : marked_(marked) {
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const auto& calls = ranks[rank].calls;
      const size_t first = calls.size() - std::min(kShownCalls, calls.size());
      const std::vector<Call> told(calls.begin() + static_cast<std::ptrdiff_t>(first), calls.end());
      for (const Call& call : told)
        sequences_.insert(call.sequence);
      add(group.world_rank(static_cast<int>(rank)), told);
    }
  }

  // Returns the table of the last calls of all ranks as a text. Each line begins with a line feed.
  std::string text() const {
    std::string text;
    for (size_t first = 0; first < columns_.size(); first += kColumns) {
      add_line(text, first == 0 ? "last calls" : "", first,
               [](const Column& column) { return ranks_text(column.ranks); });
      for (const uint64_t sequence : sequences_) {
        const std::string mark = sequence == marked_ ? "> " : "  ";
        add_line(text, mark + call_number(sequence), first,
                 [&](const Column& column) { return cell(column, sequence); });
      }
    }
    return text;
  }

 private:
  struct Column {
    std::vector<int> ranks;
    std::vector<Call> calls;
  };

  void add(int rank, const std::vector<Call>& calls) {
    for (Column& column : columns_) {
      if (std::equal(calls.begin(), calls.end(), column.calls.begin(), column.calls.end(), agree)) {
        column.ranks.push_back(rank);
        return;
      }
    }
    columns_.push_back({{rank}, calls});
  }

  static std::string cell(const Column& column, uint64_t sequence) {
    for (const Call& call : column.calls) {
      if (call.sequence == sequence) return call.name();
    }
    return column.calls.empty() || sequence > column.calls.back().sequence ? "-" : "";
  }

  template <class Cell>
  void add_line(std::string& text, const std::string& label, size_t first, const Cell& cell) const {
    std::string line = padded(label, kLabel);
    for (size_t i = first; i < std::min(first + kColumns, columns_.size()); ++i) {
      std::string content = cell(columns_[i]);
      if (content.size() >= kCell) content.replace(kCell - 3, std::string::npos, "..");
      line += padded(content, kCell);
    }
    text += '\n';
    text.append(line, 0, line.find_last_not_of(' ') + 1);
  }

  uint64_t marked_;
  std::set<uint64_t> sequences_;
  std::vector<Column> columns_;
};

}  // namespace

const Call* CallHistory::find(uint64_t sequence) const {
  const auto found = std::find_if(calls.begin(), calls.end(),
                                  [&](const Call& call) { return call.sequence == sequence; });
  return found == calls.end() ? nullptr : &*found;
}

bool CallHistory::has_called_for(std::string_view unit) const {
  return std::any_of(calls.begin(), calls.end(),
                     [&](const Call& call) { return call.unit == unit; });
}

std::string describe_mismatch(uint64_t sequence, const Group& group,
                              const std::vector<CallHistory>& ranks) {
  const auto sides = sides_of(sequence, group, ranks);
  size_t width = 0;
  for (const Side& side : sides)
    width = std::max(width, ranks_text(side.ranks).size());
  std::string text =
      "collective " + call_number(sequence) + group.text() + " differs between ranks:\n";
  for (const Side& side : sides) {
    text += "  " + padded(ranks_text(side.ranks), width) + "  " +
            (side.call ? side.call->text() : "not called yet") + '\n';
  }
  if (sides.size() > 1 && sides[1].call) {
    std::string cause = cause_of_threads(group, ranks);
    if (cause.empty()) cause = cause_of_difference(sequence, sides[0], sides[1], ranks);
    text += wrap("likely cause: " + cause, kWidth, 2);
  }
  return text + Table(group, ranks, sequence).text();
}

std::string describe_missing_rank(uint64_t sequence, int missing, const Group& group,
                                  const std::vector<CallHistory>& ranks) {
  const std::string who = "rank " + std::to_string(group.world_rank(missing));
  const CallHistory& history = ranks[static_cast<size_t>(missing)];
  std::string cause;
  if (history.status.kind == RankStatus::Kind::ended) {
    cause = who +
            " left its function, or called exit(), while others had calls to make: do all ranks "
            "make the same number of steps?";
  } else if (history.status.gone()) {
    cause = who + ' ' + history.status.text();
  } else if (history.status.kind == RankStatus::Kind::stopped) {
    cause = who + ' ' + history.status.text() + "; SIGCONT continues it";
  } else if (history.find(sequence)) {
    cause = "a handle that " + who + " never waits for, or waits for in another order";
  } else if (history.calls.empty()) {
    cause = who + " has made no call yet: it is still starting, is stuck, or has ended";
  } else {
    cause = who +
            " computes for longer than the time limit (CommunicatorOptions::timeout), is stuck, or "
            "has ended its loop a step early";
  }
  return wrap("likely cause: " + cause, kWidth, 2) + Table(group, ranks, sequence).text();
}

}  // namespace fsdp
