#include <memory/live_bytes.h>
#include <optim/matrix_owners.h>
#include <optim/muon.h>
#include <sharded_optimizer.h>
#include <testing/kernel_calls.h>
#include <testing/multi_rank.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

namespace fsdp {
namespace {

MULTI_RANK_SUITE(T5_7_muon);

struct OneParameter {
  std::string name;  // "one.bias" is the parameter `bias` of the unit `one`
  std::vector<int64_t> sizes;
  bool trainable{true};
};

// Matrices that are higher than wide, wider than high, and square. Unit `one` has several of them,
// unit `none` has none that Muon updates. In unit `two`, a frozen matrix lies between two others.
const std::vector<OneParameter> kModel{
    {"one.high", test_choice<std::vector<int64_t>>("sizes of one.high", {{9, 5}, {11, 4}})},
    {"one.bias", {7}},
    {"one.wide", test_choice<std::vector<int64_t>>("sizes of one.wide", {{4, 13}, {3, 17}})},
    {"one.square", {6, 6}},
    {"none.embedding", {12, 4}},
    {"none.scale", {5}},
    {"two.first", test_choice<std::vector<int64_t>>("sizes of two.first", {{5, 8}, {7, 6}})},
    {"two.frozen", {4, 6}, false},
    {"two.empty", {0, 3}},
    {"two.row", {1, 21}},
    {"two.last", {10, 3}}};
const std::vector<std::string> kUnitNames{"one", "none", "two"};

std::string unit_of(const std::string& parameter) {
  return parameter.substr(0, parameter.find('.'));
}

std::vector<NamedParameter> parameters_of_model() {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(test_seed(3));
  std::vector<NamedParameter> parameters;
  for (const auto& [name, sizes, trainable] : kModel)
    parameters.push_back({name, at::randn(sizes, generator).set_requires_grad(trainable)});
  return parameters;
}

at::Tensor gradient_of(size_t parameter, int step) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(test_seed(100 * parameter + step + 1));
  return at::randn(kModel[parameter].sizes, generator);
}

std::vector<std::shared_ptr<FlatParameter>> units_of_model(
    const std::shared_ptr<Communicator>& comm) {
  const auto parameters = parameters_of_model();
  std::vector<std::shared_ptr<FlatParameter>> units;
  for (const std::string& unit : kUnitNames) {
    std::vector<NamedParameter> members;
    std::ranges::copy_if(parameters, std::back_inserter(members),
                         [&](const auto& parameter) { return unit_of(parameter.name) == unit; });
    units.push_back(make_flat_parameter(unit, members, comm));
  }
  return units;
}

OptimizerOptions options_of(OptimizerOptions::Kind kind, double lr, double weight_decay) {
  OptimizerOptions options;
  options.kind = kind;
  options.lr = lr;
  options.weight_decay = weight_decay;
  return options;
}

// Two of the three groups use Muon, with different options. Every trainable matrix except the
// embedding belongs to one of these two groups.
std::vector<ParameterGroup> groups_of_model() {
  using Kind = OptimizerOptions::Kind;
  std::vector<ParameterGroup> groups{{"bias|scale|embedding", options_of(Kind::adamw, 0.1, 0.01)},
                                     {"wide|first", options_of(Kind::muon, 0.05, 0.3)},
                                     {"", options_of(Kind::muon, 0.2, 0.01)}};
  groups[1].options.momentum = 0.8;
  return groups;
}

struct Model {
  explicit Model(std::shared_ptr<Communicator> communicator,
                 const std::vector<ParameterGroup>& groups = groups_of_model())
      : comm(std::move(communicator)),
        units(units_of_model(comm)),
        optimizer(make_sharded_optimizer(units, groups, comm)) {}

  void reduce_gradients(int step) {
    size_t parameter = 0;
    for (const auto& unit : units) {
      for (size_t i = 0; i < unit->parameters().size(); ++i, ++parameter) {
        at::Tensor tensor = unit->parameters()[i].tensor;
        if (!tensor.requires_grad()) continue;
        tensor.mutable_grad() = gradient_of(parameter, step);
        unit->mark_gradient_ready(i);
      }
      if (!unit->trainable()) continue;
      unit->reduce_gradient();
      unit->wait_for_reduction();
    }
  }

  void step(int step) {
    reduce_gradients(step);
    optimizer->step();
    optimizer->zero_grad();
  }

  void observe_parameters(TestRank& rank, const std::string& suffix) {
    for (const auto& unit : units) {
      unit->unshard();
      for (const auto& [name, tensor] : unit->parameters())
        rank.observe(name + suffix, tensor.detach());
      unit->reshard();
    }
  }

  std::shared_ptr<Communicator> comm;
  std::vector<std::shared_ptr<FlatParameter>> units;
  std::shared_ptr<ShardedOptimizer> optimizer;
};

std::string after_step(int step) {
  return " after step " + std::to_string(step);
}

// Trains in one process, which has every matrix whole. `ranks`: how many equal gradients it
// averages. `frozen_since`: the first step in which unit `two` has no gradient.
void train_whole(TestRank& oracle, int ranks, int steps, int frozen_since) {
  const at::NoGradGuard no_grad;
  const auto groups = groups_of_model();
  const auto parameters = parameters_of_model();
  std::vector<Piece> pieces;
  for (const auto& [name, tensor] : parameters) {
    const at::Tensor value = at::zeros({round_up(tensor.numel(), kAlignment)});
    value.narrow(0, 0, tensor.numel()).copy_(tensor.detach().reshape({-1}));
    pieces.push_back({value, at::zeros_like(value), {}, {}, {}});
  }
  for (int step = 0; step < steps; ++step) {
    for (size_t i = 0; i < kModel.size(); ++i) {
      const auto& [name, sizes, trainable] = kModel[i];
      const at::Tensor matrix = parameters[i].tensor;
      Piece& piece = pieces[i];
      if (trainable && (step < frozen_since || unit_of(name) != "two")) {
        piece.gradient.narrow(0, 0, matrix.numel())
            .copy_((gradient_of(i, step).reshape({-1}) * ranks) / ranks);
        const OptimizerOptions& options = groups[group_of(name, groups)].options;
        std::vector<Piece> one{piece};
        if (options.kind == OptimizerOptions::Kind::muon) {
          allocate_state(options, one);
          const at::Tensor update = at::empty_like(piece.parameter);
          average_gradient(options, one[0], update);
          if (matrix.numel() > 0)
            orthogonalize(update.narrow(0, 0, matrix.numel()).view(matrix.sizes()));
          apply_orthogonal_update(options, one[0], update);
        } else {
          update(options, one);
        }
        piece = one[0];
      }
      oracle.observe(name + after_step(step),
                     piece.parameter.narrow(0, 0, matrix.numel()).view(matrix.sizes()).clone());
    }
  }
}

void expect_as_one_process(int ranks, const std::function<Model(TestRank&)>& model_of) {
  constexpr int kSteps = 3;
  const RankRun expected = run_oracle(
      [&](TestRank& oracle) { train_whole(oracle, ranks, kSteps, /*frozen_since=*/kSteps); });
  const RankRun run = run_ranks(ranks, [&](TestRank& rank) {
    Model model = model_of(rank);
    for (int step = 0; step < kSteps; ++step) {
      model.step(step);
      model.observe_parameters(rank, after_step(step));
    }
  });
  for (int step = 0; step < kSteps; ++step)
    for (const OneParameter& parameter : kModel)
      expect_on_all_ranks(run, parameter.name + after_step(step),
                          expected.at(0, parameter.name + after_step(step)));
}

MULTI_RANK_TEST(T5_7_muon, muon_updates_matrices_and_other_parameters_as_in_one_process) {
  expect_as_one_process(world_size(), [](TestRank& rank) { return Model(rank.communicator()); });
}

// With an even number of ranks there are two replicas, otherwise each rank is a replica. A matrix
// has one owner among the ranks of all replicas.
MULTI_RANK_TEST(T5_7_muon, with_replicas_muon_updates_matrices_as_in_one_process) {
  const int shard_size = world_size() % 2 == 0 ? world_size() / 2 : 1;
  expect_as_one_process(world_size(),
                        [=](TestRank& rank) { return Model(rank.hybrid(shard_size)); });
}

// Returns the rounds in which `ranks` ranks orthogonalize the model's matrices, computed from the
// sizes of the parameters alone. The units of a round are gathered, orthogonalized and returned
// together.
std::vector<MatrixRound> rounds_of_model(int ranks) {
  std::vector<UnitMatrices> units;
  for (size_t unit = 0; unit < kUnitNames.size(); ++unit) {
    int64_t offset = 0;
    units.push_back({unit, {}});
    for (const auto& [name, sizes, trainable] : kModel) {
      if (unit_of(name) != kUnitNames[unit]) continue;
      const int64_t numel = c10::multiply_integers(sizes);
      if (trainable && sizes.size() == 2 && numel > 0 && name != "none.embedding")
        units.back().matrices.push_back({name, offset, sizes[0], sizes[1]});
      offset += round_up(numel, kAlignment);
    }
  }
  return plan_matrices(units, ranks);
}

std::string calls_of_rounds(int ranks) {
  std::string calls;
  for (const MatrixRound& round : rounds_of_model(ranks))
    for (const char* operation : {"all_gather ", "reduce_scatter "})
      for (const UnitMatrices& unit : round)
        calls += operation + kUnitNames[unit.unit] + "\n";
  return calls;
}

std::string names_of(const std::vector<Call>& calls) {
  std::string names;
  for (const Call& call : calls)
    names += call.name() + "\n";
  return names;
}

MULTI_RANK_TEST(T5_7_muon, a_muon_step_gathers_and_returns_the_units_of_each_round) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Model model(rank.communicator());
    model.reduce_gradients(0);
    model.comm->take_log();
    model.optimizer->step();
    const auto calls = model.comm->take_log();
    rank.observe("calls of a step", names_of(calls));
    std::string others;
    for (const Call& call : calls)
      for (const auto& unit : model.units)
        if (unit->unit() == call.unit.str() && call.numel != unit->layout().padded_numel)
          others += call.text() + "\n";
    rank.observe("calls with another number of elements than their unit", others);
  });
  expect_on_all_ranks(run, "calls of a step", calls_of_rounds(world_size()));
  expect_on_all_ranks(run, "calls with another number of elements than their unit", "");
}

// orthogonalize() calls addmm() equally often for every matrix. So the calls of addmm() in a step,
// divided by those for one matrix, are the number of matrices that the rank orthogonalizes.
MULTI_RANK_TEST(T5_7_muon, only_the_rank_that_owns_a_matrix_orthogonalizes_it) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Model model(rank.communicator());
    model.reduce_gradients(0);
    const int calls = kernel_calls("aten::addmm", [&] { model.optimizer->step(); });
    const at::Tensor matrix = at::ones({2, 3});
    const int calls_for_one = kernel_calls("aten::addmm", [&] { orthogonalize(matrix); });
    rank.observe("matrices that this rank orthogonalizes", calls / calls_for_one);
  });
  const int ranks = world_size();
  expect_on_each_rank(run, "matrices that this rank orthogonalizes", [=](int rank) {
    int owned = 0;
    for (const MatrixRound& round : rounds_of_model(ranks))
      for (const UnitMatrices& unit : round)
        for (const OwnedMatrix& matrix : unit.matrices)
          owned += matrix.owner == rank;
    return owned;
  });
}

MULTI_RANK_TEST(T5_7_muon, a_unit_frozen_after_a_muon_step_is_unchanged_and_in_no_collective) {
  constexpr int kSteps = 2;
  const RankRun expected = run_oracle(
      [&](TestRank& oracle) { train_whole(oracle, world_size(), kSteps, /*frozen_since=*/1); });
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Model model(rank.communicator());
    model.step(0);
    for (const auto& [name, tensor] : model.units[2]->parameters())
      at::Tensor(tensor).set_requires_grad(false);
    model.reduce_gradients(1);
    model.comm->take_log();
    model.optimizer->step();
    rank.observe("calls", names_of(model.comm->take_log()));
    model.observe_parameters(rank, after_step(1));
  });
  expect_on_all_ranks(run, "calls", "all_gather one\nreduce_scatter one\n");
  for (const OneParameter& parameter : kModel)
    expect_on_all_ranks(run, parameter.name + after_step(1),
                        expected.at(0, parameter.name + after_step(1)));
}

// Returns the number of bytes that the largest round takes: those of the whole units, and those of
// this rank's shards of these units.
int64_t bytes_of_a_round(const Model& model, int ranks) {
  int64_t most = 0;
  for (const MatrixRound& round : rounds_of_model(ranks)) {
    int64_t bytes = 0;
    for (const UnitMatrices& unit : round)
      bytes += 4 * (model.units[unit.unit]->layout().padded_numel +
                    model.units[unit.unit]->shard_numel());
    most = std::max(most, bytes);
  }
  return most;
}

int64_t largest_temporary() {
  int64_t most = 0;
  for (const auto& parameter : kModel)
    if (parameter.sizes.size() == 2)
      most = std::max(most, orthogonalize_bytes(parameter.sizes[0], parameter.sizes[1]));
  return most;
}

MULTI_RANK_TEST(T5_7_muon, a_step_needs_the_memory_of_one_round_and_keeps_only_one_moment) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto groups = std::vector<ParameterGroup>{groups_of_model()[0], groups_of_model()[2]};
    Model model(rank.communicator(), groups);
    model.reduce_gradients(0);
    const int64_t state_before = live_bytes::now()[MemoryClass::optimizer_state];
    const int64_t before = live_bytes::now().total;
    live_bytes::take_peak();
    model.optimizer->step();
    const int64_t peak = live_bytes::take_peak();
    // The communicator keeps the tensors alive that other ranks read in place. wait_for_readers()
    // waits until the other ranks have read them, and frees them.
    model.comm->wait_for_readers();
    const int64_t kept = live_bytes::now().total - before;
    const int64_t state = live_bytes::now()[MemoryClass::optimizer_state] - state_before;
    // Number of bytes that the test allows for single numbers, such as a norm.
    constexpr int64_t kSmall = 256;
    rank.observe(
        "bytes above one round, its largest matrix and the state",
        std::max<int64_t>(0, peak - before - state - kSmall -
                                 bytes_of_a_round(model, rank.world_size()) - largest_temporary()));
    rank.observe("bytes that a step keeps beside the state", kept - state);
  });
  expect_on_all_ranks(run, "bytes above one round, its largest matrix and the state", 0);
  expect_on_all_ranks(run, "bytes that a step keeps beside the state", 0);
}

MULTI_RANK_TEST(T5_7_muon, a_muon_group_with_a_parameter_that_is_not_a_matrix_throws) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    rank.observe("what the constructor throws", thrown_by([&] {
                   Model model(rank.communicator(),
                               {{"", options_of(OptimizerOptions::Kind::muon, 0.1, 0)}});
                 }));
  });
  expect_error(run, "what the constructor throws", {"std::invalid_argument", "one.bias"});
}

}  // namespace
}  // namespace fsdp
