#include <receipt/recomputation.h>

#include <algorithm>
#include <map>
#include <random>
#include <stdexcept>

namespace fsdp {
namespace {

// `known`: the steps before which the state of the run is known. Returns the latest of them that is
// not after `step`. Throws std::invalid_argument if there is none.
int64_t last_known(const std::set<int64_t>& known, int64_t step) {
  const auto after = known.upper_bound(step);
  if (after == known.begin())
    throw std::invalid_argument("the state before step " + std::to_string(step + 1) +
                                " is not known: give --checkpoint, a folder that has a checkpoint "
                                "of an earlier step");
  return *std::prev(after);
}

// Returns `count` elements of `all`, drawn without repetition, or all elements if there are fewer.
template <typename Element>
std::vector<Element> drawn_of(std::vector<Element> all, size_t count, uint64_t seed) {
  std::vector<Element> drawn;
  std::mt19937_64 random(seed);
  while (drawn.size() < count && !all.empty()) {
    std::swap(all[random() % all.size()], all.back());
    drawn.push_back(all.back());
    all.pop_back();
  }
  return drawn;
}

// Returns recomputations that together compute all `events` again. `known`: the steps before which
// the state of the run is known, from a checkpoint or from the start of the run. For each step in
// `known` there is at most one recomputation of whole steps, which begins with this step. For each
// microbatch there is at most one recomputation of this microbatch alone.
std::vector<Recomputation> pieces_for(const std::vector<EventKey>& events,
                                      const std::set<int64_t>& known) {
  // For each recomputation of whole steps: its first step -> the step after its last one.
  std::map<int64_t, int64_t> ends;
  std::set<std::pair<int64_t, int>> microbatches;
  for (const EventKey& key : events) {
    const int64_t first = last_known(known, key.step);
    if (key.part >= 0 && first == key.step) {
      microbatches.emplace(key.step, key.part);
    } else {
      ends[first] = std::max(ends[first], key.step + 1);
    }
  }
  std::vector<Recomputation> pieces;
  for (const auto& [first, end] : ends)
    pieces.push_back({first, end, std::nullopt});
  for (const auto& [step, microbatch] : microbatches) {
    const bool computed = std::ranges::any_of(ends, [step = step](const auto& steps) {
      return steps.first <= step && step < steps.second;
    });
    if (!computed) pieces.push_back({step, step + 1, microbatch});
  }
  return pieces;
}

// Returns whether the recomputation `piece` begins with a checkpoint, and not with the state from
// which the run began.
bool begins_with_checkpoint(const Recomputation& piece, const Receipt& receipt) {
  return piece.first_step > receipt.sampling.first_step;
}

// Returns the receipt's events that the recomputation `piece` must have too. If `piece` begins with
// a checkpoint, the parameters in the checkpoint must be those that the receipt has after the
// previous step.
std::map<EventKey, const Leaf*> expected_of(const Receipt& receipt, const Recomputation& piece) {
  std::map<EventKey, const Leaf*> expected;
  const bool from_checkpoint = begins_with_checkpoint(piece, receipt);
  for (const auto& [key, leaf] : receipt.leaves) {
    if (piece.covers(key)) expected[key] = &leaf;
    if (from_checkpoint && key.what == TensorKind::updated && key.step + 1 == piece.first_step)
      expected[{piece.first_step, -1, TensorKind::initial, key.name}] = &leaf;
  }
  return expected;
}

std::string with_reason(const EventKey& key, const Receipt& receipt, const RunHashes& of_receipt,
                        const RunHashes& made) {
  const bool of_checkpoint =
      key.what == TensorKind::initial && key.step > receipt.sampling.first_step;
  const std::string place = place_of(key, of_receipt, made);
  if (of_checkpoint) return place + ": the checkpoint has other values than the receipt";
  if (!of_receipt.events.contains(key)) return place + ": the receipt does not have it";
  if (!made.events.contains(key)) return place + ": nothing computes it";
  return place;
}

// Throws std::invalid_argument, which names the setting, if a setting in `receipt` has another
// value in `made`, the settings of the recomputation.
void require_settings(const nlohmann::json& receipt, const nlohmann::json& made) {
  for (const auto& [name, value] : receipt.items()) {
    const nlohmann::json here = made.value(name, nlohmann::json());
    if (here != value)
      throw std::invalid_argument("the run had " + name + ' ' + value.dump() +
                                  ", and what is computed here has " + here.dump() +
                                  ": its options or files are not those of the run");
  }
}

}  // namespace

bool Recomputation::covers(const EventKey& key) const {
  if (key.step < first_step || key.step >= end_step) return false;
  return !microbatch || key.part == *microbatch || key.what == TensorKind::initial;
}

Draw draw(const Receipt& receipt, size_t count, uint64_t seed, const std::set<int64_t>& known) {
  if (known.empty()) last_known(known, receipt.sampling.first_step);
  std::vector<EventKey> all;
  for (const auto& [key, leaf] : receipt.leaves)
    all.push_back(key);
  Draw drawn{drawn_of(std::move(all), count, seed), {}};
  drawn.recomputations = pieces_for(drawn.events, known);
  return drawn;
}

std::vector<Recomputation> draw_microbatches(const Receipt& receipt, size_t count, uint64_t seed,
                                             const std::set<int64_t>& known) {
  if (known.empty()) last_known(known, receipt.sampling.first_step);
  std::vector<Recomputation> all;
  for (const int64_t step : known)
    for (int microbatch = 0; microbatch < receipt.settings.at("parts").get<int>(); ++microbatch)
      all.push_back({step, step + 1, microbatch});
  return drawn_of(std::move(all), count, seed);
}

Verdict compare_with(const Receipt& receipt, const Recomputation& piece, const RunHashes& made) {
  require_settings(receipt.settings, made.settings);
  const auto expected = expected_of(receipt, piece);
  // A run that updates units in the backward pass records no reduced gradients, so its receipt has
  // none. Then the reduced gradients of the recomputation are not compared.
  const bool lacks_reduced = std::ranges::none_of(
      receipt.leaves, [](const auto& leaf) { return leaf.first.what == TensorKind::reduced; });
  RunHashes of_receipt, of_piece;
  for (const auto& [key, leaf] : expected)
    of_receipt.events[key] = leaf->event;
  const bool from_checkpoint = begins_with_checkpoint(piece, receipt);
  for (const auto& [key, event] : made.events) {
    const bool left_out = lacks_reduced && key.what == TensorKind::reduced;
    // The recomputation hashes all parameters of the checkpoint that it begins with. Only those
    // that the receipt has are compared: it has only a sample of them if the run saved no
    // checkpoint at this step.
    const bool of_checkpoint = from_checkpoint && key.what == TensorKind::initial;
    if (of_checkpoint ? expected.contains(key) : receipt.sampling.selects(key) && !left_out)
      of_piece.events[key] = event;
  }
  const Comparison found = compare(of_receipt, of_piece, /*cut_off=*/false);
  Verdict verdict{found.equal, "", {}};
  std::optional<EventKey> first = found.first;
  // compare() ignores an event that one side lacks if this side has no event of that kind. Here
  // such an event counts as a difference.
  for (const auto* side : {&of_receipt, &of_piece})
    for (const auto& [key, event] : side->events)
      if (!first && (!of_receipt.events.contains(key) || !of_piece.events.contains(key)))
        first = key;
  if (!first) return verdict;
  verdict.wrong = with_reason(*first, receipt, of_receipt, of_piece);
  if (expected.contains(*first)) verdict.ranks = expected.at(*first)->ranks;
  return verdict;
}

}  // namespace fsdp
