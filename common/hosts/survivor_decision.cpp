#include <hosts/survivor_decision.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

namespace fsdp {
namespace {

using namespace std::chrono_literals;

struct Word {
  std::string word;
  int64_t first{}, last{};

  bool left(int64_t steps) const { return first == steps || last == steps; }
};

// Returns, by rank, the last word that the process of the rank has written: "here", "left", "out"
// or "done". A "here" that arrives late does not replace another word.
std::vector<Word> words_in(const std::string& said, size_t ranks) {
  std::vector<Word> words(ranks);
  std::istringstream lines(said);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream parts(line);
    size_t rank = 0;
    Word word;
    parts >> rank >> word.word >> word.first >> word.last;
    if (rank < ranks && (word.word != "here" || words[rank].word.empty())) words[rank] = word;
  }
  return words;
}

// Returns whether a host with these ranks has survived; nothing while that can't be known yet.
std::optional<bool> has_survived(const std::vector<int>& ranks, const std::vector<Word>& words,
                                 std::chrono::milliseconds since, std::chrono::milliseconds limit) {
  const auto count = [&](const std::string& word) {
    return std::count_if(ranks.begin(), ranks.end(),
                         [&](int rank) { return words[static_cast<size_t>(rank)].word == word; });
  };
  if (count("out") > 0) return false;
  const auto all = static_cast<std::ptrdiff_t>(ranks.size());
  if (count("left") == all) return true;
  const std::chrono::milliseconds patience = count("") > 0 ? kToAnswer : time_to_end(limit);
  if (since < patience) return std::nullopt;
  return false;
}

}  // namespace

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Decision, kind, steps, ranks, spares)

std::string Decision::text() const {
  return nlohmann::json(*this).dump();
}

Decision Decision::of(const std::string& text) {
  return nlohmann::json::parse(text).get<Decision>();
}

std::optional<Decision> decision(const std::string& said, const Hosts& hosts,
                                 std::chrono::milliseconds since, std::chrono::milliseconds limit,
                                 const AfterLoss& after_loss) {
  const auto words = words_in(said, hosts.of_rank.size());
  // One rank that is done is enough, because a rank is done only after it has seen that all other
  // ranks are done.
  for (const Word& word : words)
    if (word.word == "done") return Decision{.kind = Decision::Kind::done};
  std::vector<int> survivors;
  for (size_t host = 0; host < hosts.names.size(); ++host) {
    const auto ranks = hosts.ranks_of(static_cast<int>(host));
    const auto survived = has_survived(ranks, words, since, limit);
    if (!survived) return std::nullopt;
    if (host == 0 && !*survived) return Decision();  // the host of rank 0 is lost, so the run fails
    if (*survived) survivors.insert(survivors.end(), ranks.begin(), ranks.end());
  }
  std::sort(survivors.begin(), survivors.end());
  Decision result;
  for (const int rank : survivors)
    result.steps = std::max(result.steps, words[static_cast<size_t>(rank)].first);
  for (const int rank : survivors)
    if (!words[static_cast<size_t>(rank)].left(result.steps)) return Decision();
  // No host is lost, so the failure has another cause and the run fails.
  if (survivors.size() == words.size()) return Decision();
  const int count = after_loss(static_cast<int>(survivors.size()));
  if (count == 0) return Decision();
  result.kind = Decision::Kind::resume;
  result.ranks.assign(survivors.begin(), survivors.begin() + count);
  result.spares.assign(survivors.begin() + count, survivors.end());
  return result;
}

}  // namespace fsdp
