#pragma once

#include <flat_parameter.h>
#include <memory/live_bytes.h>
#include <testing/counted_clock.h>
#include <testing/multi_rank.h>
#include <testing/provenance.h>

#include <string>
#include <vector>

// Most tests of task 2 use the unit of this file. It has three parameters, and the last one is not
// contiguous. The file also has the gradients that the tests reduce.
namespace fsdp {

// The shapes of the parameters p0, p1 and p2. The tests choose one of several shapes for each; with
// every choice, each parameter needs padding, and together with its padding p0 has 48 elements, p1
// has 16 and p2 has 32.
inline const std::vector<std::vector<int64_t>> kShapes{
    test_choice<std::vector<int64_t>>("shape of p0", {{5, 7}, {6, 7}, {5, 9}, {4, 11}, {3, 13}}),
    test_choice<std::vector<int64_t>>("shape of p1", {{3}, {5}, {7}, {11}}),
    test_choice<std::vector<int64_t>>("shape of p2", {{2, 3, 4}, {3, 3, 3}, {3, 9}, {2, 11}})};
inline const std::vector<int64_t> kOffsets{0, 48, 64};

// The shapes of the parameters of a unit that has only three elements. Two of its four parameters
// are empty.
inline const std::vector<std::vector<int64_t>> kTinyShapes{{0}, {1}, {2, 0}, {2}};

// Returns the number of elements, with padding, of a unit of kShapes on `world_size` ranks.
inline int64_t padded_numel(int world_size) {
  return round_up(48 + 16 + 32, int64_t{16} * world_size);
}

inline int64_t numel(size_t parameter) {
  int64_t product = 1;
  for (const int64_t size : kShapes[parameter])
    product *= size;
  return product;
}

// Returns random values of these sizes; the first index runs fastest in memory. The tensor is not a
// view, because a view would keep its base alive.
inline at::Tensor permuted_randn(std::vector<int64_t> sizes, const at::Generator& generator) {
  std::vector<int64_t> order;
  for (auto i = static_cast<int64_t>(sizes.size()); i > 0; --i)
    order.push_back(i - 1);
  std::reverse(sizes.begin(), sizes.end());
  return at::randn(sizes, generator).permute(order).variable_data();
}

inline std::vector<NamedParameter> make_parameters(
    const std::vector<std::vector<int64_t>>& shapes) {
  std::vector<NamedParameter> parameters;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(test_seed(7));
  for (size_t i = 0; i < shapes.size(); ++i) {
    const auto values =
        i == 2 ? permuted_randn(shapes[i], generator) : at::randn(shapes[i], generator);
    parameters.push_back({"p" + std::to_string(i), values});
    parameters.back().tensor.set_requires_grad(true);
  }
  return parameters;
}

// Returns copies of the values of `parameters`, without gradients.
inline std::vector<at::Tensor> values_of(const std::vector<NamedParameter>& parameters) {
  std::vector<at::Tensor> values;
  for (const auto& [name, tensor] : parameters)
    values.push_back(tensor.detach().clone());
  return values;
}

inline std::shared_ptr<FlatParameter> make_unit(
    TestRank& rank, const std::vector<std::vector<int64_t>>& shapes = kShapes) {
  return make_flat_parameter("unit", make_parameters(shapes), rank.communicator());
}

inline std::string calls(Communicator& comm) {
  std::string text;
  for (const Call& call : comm.take_log())
    text += call.name() + " " + std::to_string(call.bytes) + "; ";
  return text;
}

inline void observe_parameters(TestRank& rank, const FlatParameter& unit,
                               const std::string& when = "") {
  for (const auto& [name, tensor] : unit.parameters())
    rank.observe(name + when, tensor.detach());
}

// Returns a rank's gradient of a parameter. It has random values, and its first index runs fastest
// in memory.
inline at::Tensor random_gradient(int rank, size_t parameter) {
  const uint64_t seed = test_seed(100 * static_cast<uint64_t>(rank) + parameter);
  return permuted_randn(kShapes[parameter], at::make_generator<at::CPUGeneratorImpl>(seed));
}

// Sets a gradient that differs between ranks, so that a mean shows which ranks are in it.
inline void set_gradient(const NamedParameter& parameter, TestRank& rank) {
  const auto value = static_cast<double>(provenance::gradient(rank.rank(), rank.world_size()));
  parameter.tensor.mutable_grad() = at::full(parameter.tensor.sizes(), value);
}

inline void collect(FlatParameter& unit, size_t parameter, TestRank& rank) {
  set_gradient(unit.parameters()[parameter], rank);
  unit.mark_gradient_ready(parameter);
}

inline void collect_all(FlatParameter& unit, TestRank& rank) {
  for (size_t i = 0; i < unit.parameters().size(); ++i)
    collect(unit, i, rank);
}

inline void reduce(FlatParameter& unit) {
  unit.reduce_gradient();
  unit.wait_for_reduction();
}

inline void observe_gradient(TestRank& rank, const FlatParameter& unit, const std::string& name) {
  rank.observe(name, unit.sharded_gradient(), places_of_shard(unit));
}

// Returns live bytes as a test observes them: `bytes` in class `cls`, and `rest` in class `other`,
// which has all memory that is allocated outside of a MemoryScope.
inline nlohmann::json bytes_in(MemoryClass cls, int64_t bytes, int64_t rest) {
  return {{std::string("class ") + to_string(cls), bytes}, {"class other", rest}};
}
inline nlohmann::json live_bytes_in(MemoryClass cls) {
  const LiveBytes now = live_bytes::now();
  return bytes_in(cls, now[cls], now[MemoryClass::other]);
}
inline nlohmann::json bytes_only_in(MemoryClass cls, int64_t bytes) {
  return bytes_in(cls, bytes, 0);
}

// Returns where the parameters must lie in the shard of rank `rank`.
inline Places places_of_rank(int rank, int world_size) {
  Places places;
  for (size_t i = 0; i < kShapes.size(); ++i)
    places.parameters.push_back({"p" + std::to_string(i), kShapes[i], kOffsets[i]});
  places.shard_numel = padded_numel(world_size) / world_size;
  places.begin = rank * places.shard_numel;
  return places;
}

// Expects that the gradients that the ranks observed as `name` are the means over ranks of the
// gradients that collect() sets.
inline void expect_mean_gradient(const RankRun& run, const std::string& name,
                                 int line = __builtin_LINE()) {
  const auto places = [&](int rank) { return places_of_rank(rank, run.world_size()); };
  expect_mean_over_ranks(run, name, places, __FILE__, line);
}

// A link whose time is counted, not measured. An all-gather and a reduce-scatter take one hop for
// each other rank.
inline constexpr int64_t kHop = 1'000;  // time of a hop, in ns
inline RunOptions counted_link(const std::shared_ptr<CountedClock>& clock) {
  RunOptions options;
  options.link = Link{std::chrono::nanoseconds(kHop), 1e18};
  options.clock = clock;
  return options;
}

}  // namespace fsdp
