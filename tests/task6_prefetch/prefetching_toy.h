#pragma once

#include <prefetch.h>
#include <task4_backward_hooks/sharded_model.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fsdp {

// A ToyModel whose root and blocks are units, with the hooks of tasks 3, 4 and 6.
struct PrefetchingToy : Sharded {
  PrefetchingToy(TestRank& rank, int limit, int layers = 4, bool reshard_after_forward = true)
      : PrefetchingToy(rank, limit, std::make_shared<ToyModel>(layers), reshard_after_forward) {}
  PrefetchingToy(TestRank& rank, int limit, std::shared_ptr<ToyModel> toy,
                 bool reshard_after_forward = true)
      : Sharded(rank, std::move(toy), reshard_after_forward), prefetcher(make_prefetcher(limit)) {
    hooks->on_end([p = prefetcher] { p->end_backward(); });
    for (size_t i = 1; i < units.size(); ++i)
      prefetcher->add(*modules[i], units[i]);
    prefetcher->add_root(*model);
  }

  // Runs one forward and one backward. Returns the collectives that each of the two issued, in the
  // order of issue: the text of forward, then the text of backward.
  std::pair<std::string, std::string> step(TestRank& rank) {
    rank.communicator()->take_log();
    live_bytes::enter(Phase::forward);
    const auto loss = plain_loss(*model, rank.rank());
    auto forward = take_calls(*rank.communicator());
    live_bytes::enter(Phase::backward);
    loss.backward();
    drop_gradients();
    return {forward, take_calls(*rank.communicator())};
  }

  // Runs a forward of the model in no-grad mode, and no backward.
  void evaluate() const {
    const at::NoGradGuard no_grad;
    (*model)(toy_tokens(0));
  }

  // From now on, each time a unit begins to compute in forward or backward, appends the names of
  // the units whose all-gather is pending, and "| ", to the returned text: "blocks0 blocks1 |
  // blocks1 blocks2 | ".
  std::shared_ptr<std::string> look_at_what_is_under_way() const {
    auto seen = std::make_shared<std::string>();
    const auto look = [seen, this] {
      for (const auto& unit : units)
        *seen += unit->state() == UnitState::gathering ? unit->unit() + " " : "";
      *seen += "| ";
    };
    for (Module* module : modules) {
      module->register_forward_pre_hook([look](Module&, const at::Tensor&) {
        look();
        return at::Tensor();
      });
      module->register_full_backward_pre_hook([look](Module&) { look(); });
    }
    return seen;
  }

  std::shared_ptr<Prefetcher> prefetcher;
};

// Returns whether the call `first`, such as "all_gather blocks2", comes before every call `second`
// in the text `calls`, which take_calls() has returned.
inline bool comes_before(const std::string& calls, const std::string& first,
                         const std::string& second) {
  return calls.find(first + ";") < calls.find(second + ";");
}

// Returns whether the calls of a backward pass, as a text, show prefetching: the all-gather of
// blocks2 is issued before the reduce-scatter of blocks3, the last block.
inline bool gathers_ahead(const std::string& backward) {
  return comes_before(backward, "all_gather blocks2", "reduce_scatter blocks3");
}

// Logs what a rank issues before each part of a step begins to compute. A part is the forward or
// the backward of one unit.
class IssueLog {
 public:
  // Logs calls from now on. Hooks of one kind run in the order of their registration, so the hooks
  // that this constructor registers run after those of `toy`, and see what they have issued.
  IssueLog(TestRank& rank, const PrefetchingToy& toy) : rank_(rank) {
    rank.communicator()->take_log();
    for (size_t i = 0; i < toy.units.size(); ++i) {
      const std::string unit = toy.units[i]->unit();
      toy.modules[i]->register_forward_pre_hook([this, unit](Module&, const at::Tensor&) {
        observe("forward of " + unit);
        return at::Tensor();
      });
      toy.modules[i]->register_full_backward_pre_hook(
          [this, unit](Module&) { observe("backward of " + unit); });
    }
  }

  // Observes, as "PREFIXissued before PART", the calls that were issued since the last observation.
  // `part` is for example "forward of blocks0". If it comes a second time, PART is "forward of
  // blocks0 (2)".
  void observe(std::string part) {
    const int times = ++times_[prefix + part];
    if (times > 1) part += " (" + std::to_string(times) + ")";
    rank_.observe(prefix + "issued before " + part, take_calls(*rank_.communicator()));
  }

  std::string prefix;

 private:
  TestRank& rank_;
  std::map<std::string, int> times_;
};

// A list of parts of a step, each with the calls that should be issued after the previous part has
// begun to compute and before this part begins: "all_gather blocks0; all_gather blocks1; ".
using Issues = std::vector<std::pair<std::string, std::string>>;

inline void expect_issued(const RankRun& run, const Issues& expected,
                          const std::string& prefix = "", const char* file = __builtin_FILE(),
                          int line = __builtin_LINE()) {
  for (const auto& [part, calls] : expected)
    expect_on_all_ranks(run, prefix + "issued before " + part, calls, file, line);
}

// Returns a text with the names of the units of prefetcher.forward_order(), in this order, such as
// "blocks0 blocks1 ".
inline std::string order_text(const Prefetcher& prefetcher) {
  std::string text;
  for (const auto& unit : prefetcher.forward_order())
    text += unit->unit() + " ";
  return text;
}

}  // namespace fsdp
