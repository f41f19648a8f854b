#include <digest/sha256.h>
#include <state/agreement.h>
#include <state/whole_state.h>
#include <testing/multi_rank.h>

namespace fsdp {
namespace {

MULTI_RANK_SUITE(StateOfAllRanks);

constexpr int64_t kNumel = 10;

// A parameter of ten elements, of which each rank has a range, the ranks in the opposite order; one
// that every rank has a copy of; an empty one; and one without moments.
ModelState state_of(int rank, int world_size) {
  ModelState state{{{"cut", {2, 5}}, {"copied", {3}}, {"empty", {0, 4}}, {"frozen", {2}}}, {}};
  const auto range = [&](const std::string& name, int64_t begin, int64_t end, double first) {
    const auto elements = [&](double from) {
      return at::arange(from + static_cast<double>(begin), from + static_cast<double>(end),
                        at::kFloat);
    };
    state.ranges.push_back({name, begin, end, elements(first), elements(first + 100),
                            elements(first + 200), at::full({}, 7, at::kFloat)});
  };
  const int place = world_size - 1 - rank;
  const int64_t begin = kNumel * place / world_size, end = kNumel * (place + 1) / world_size;
  range("copied", 0, 3, 1000);
  if (begin < end) range("cut", begin, end, 0);
  range("frozen", 0, 2, 2000);
  state.ranges.back().exp_avg.reset();
  state.ranges.back().exp_avg_sq.reset();
  state.ranges.back().step.reset();
  return state;
}

std::vector<float> whole(const WholeState& state, size_t parameter, StateKind kind) {
  std::vector<float> all;
  state.visit(parameter, kind, [&](const at::Tensor& elements) {
    all.insert(all.end(), elements.data_ptr<float>(),
               elements.data_ptr<float>() + elements.numel());
  });
  return all;
}

MULTI_RANK_TEST(StateOfAllRanks, is_visited_on_rank_0_in_the_order_of_the_elements) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const WholeState state(state_of(rank.rank(), rank.world_size()), *rank.communicator());
    for (size_t i = 0; i < state.parameters().size(); ++i)
      for (const StateKind kind : kStateKinds)
        rank.observe(state.parameters()[i].name + " " + to_string(kind), whole(state, i, kind));
  });
  using Numbers = std::vector<float>;
  const auto expect = [&](const std::string& name, const Numbers& numbers) {
    for (int rank = 0; rank < world_size(); ++rank)
      expect_on_rank(run, rank, name, rank == 0 ? numbers : Numbers());
  };
  expect("cut parameter", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  expect("cut exp_avg_sq", {200, 201, 202, 203, 204, 205, 206, 207, 208, 209});
  expect("cut step", {7});
  expect("copied exp_avg", {1100, 1101, 1102});
  expect("empty parameter", {});
  expect("frozen parameter", {2000, 2001});
  expect("frozen exp_avg", {});
  expect("frozen step", {});
}

MULTI_RANK_TEST(StateOfAllRanks, that_lacks_an_element_is_refused_on_every_rank) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    ModelState state = state_of(rank.rank(), rank.world_size());
    for (StateRange& range : state.ranges)
      if (range.begin == 0 && range.parameter == "cut") range.begin = 1;
    std::string error;
    try {
      WholeState(state, *rank.communicator());
    } catch (const std::logic_error& refused) {
      error = refused.what();
    }
    rank.observe("error", error);
  });
  expect_on_all_ranks(run, "error", "the ranges of all ranks do not cover the parameter cut once");
}

MULTI_RANK_TEST(StateOfAllRanks, has_a_hash_of_all_that_it_holds) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto hash = [&](const ModelState& state) {
      return state_sha256(state, *rank.communicator());
    };
    const ModelState plain = state_of(rank.rank(), rank.world_size());
    rank.observe("hash", hash(plain));
    std::string unnoticed;
    for (const StateKind kind : kStateKinds) {
      ModelState changed = state_of(rank.rank(), rank.world_size());
      for (StateRange& range : changed.ranges)
        if (range.parameter == "cut" && range.end == kNumel)
          tensor_of(range, kind).view({-1})[-1] += 1;
      // The step count of a parameter is that of its first range.
      for (StateRange& range : changed.ranges)
        if (range.parameter == "cut" && kind == StateKind::step) range.step.fill_(8);
      if (hash(changed) == hash(plain) && rank.rank() == 0)
        unnoticed += std::string(to_string(kind)) + " ";
    }
    rank.observe("unnoticed", unnoticed);
  });
  expect_on_all_ranks(run, "unnoticed", "");
  const RankRun one = run_ranks(1, [](TestRank& rank) {
    rank.observe("hash", state_sha256(state_of(0, 1), *rank.communicator()));
  });
  for (int rank = 0; rank < world_size(); ++rank)
    expect_on_rank(run, rank, "hash", rank == 0 ? one.at(0, "hash") : "");
}

MULTI_RANK_SUITE(Agreement);

MULTI_RANK_TEST(Agreement, makes_the_failure_of_one_rank_that_of_all) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    std::string error = "none";
    try {
      agree_on(*rank.communicator(), [&] {
        if (rank.rank() + 1 == rank.world_size()) throw std::invalid_argument("the last rank");
      });
    } catch (const std::runtime_error& failure) {
      error = failure.what();
    }
    rank.observe("error", error);
    const auto texts =
        agreed_texts(*rank.communicator(), [&] { return std::string(rank.rank(), 'x'); });
    rank.observe("the texts after it", texts);
  });
  expect_on_all_ranks(run, "error", "the last rank");
  std::vector<std::string> texts;
  for (int rank = 0; rank < world_size(); ++rank)
    texts.emplace_back(rank, 'x');
  expect_on_all_ranks(run, "the texts after it", texts);
}

}  // namespace
}  // namespace fsdp
