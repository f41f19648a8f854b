#include <library/models.h>
#include <library/one_process.h>

#include <functional>
#include <map>
#include <string>

// A state that was saved or loaded is a copy: training does not change the state, and writing to
// the state does not change the model.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(LoadedState);

OptimizerOf optimizer_of_kind(const std::string& kind) {
  using namespace torch::optim;
  const std::map<std::string, OptimizerOf> all{
      {"AdamW", adamw},
      {"SGD", momentum},
      {"amsgrad",
       [](std::vector<at::Tensor> parameters) {
         return std::make_unique<Adam>(std::move(parameters), AdamOptions(0.05).amsgrad(true));
       }},
      {"RMSprop",
       [](std::vector<at::Tensor> parameters) {
         return std::make_unique<RMSprop>(std::move(parameters),
                                          RMSpropOptions(0.01).momentum(0.5).centered(true));
       }},
      {"Adagrad", [](std::vector<at::Tensor> parameters) {
         return std::make_unique<Adagrad>(std::move(parameters), AdagradOptions(0.05));
       }}};
  return all.at(kind);
}
const std::vector<std::string> kKinds{"AdamW", "SGD", "amsgrad", "RMSprop", "Adagrad"};

// A model wrapped in FullyShardedDataParallel or DistributedDataParallel, with its optimizer.
template <template <class> class Parallel>
struct TrainedNet {
  TrainedNet(TestRank& rank, const OptimizerOf& make, uint64_t seed)
      : rank(rank),
        net(block_net(3, seed)),
        model(*net, rank.communicator()),
        optimizer(make(model.parameters())) {}

  void step(int number) {
    loss_of(*net, rank, number).backward();
    optimizer->step();
    optimizer->zero_grad();
  }
  void load(const StateDict& values, const StateDict& moments) {
    model.load_state_dict(values);
    model.load_optim_state_dict(*optimizer, moments);
  }
  StateDict values() { return model.state_dict(); }
  StateDict moments() { return model.optim_state_dict(*optimizer); }

  TestRank& rank;
  std::shared_ptr<BlockNet> net;
  Parallel<BlockNet> model;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};

StateDict copy_of(const StateDict& state) {
  StateDict copy;
  for (const auto& entry : state)
    copy.insert(entry.key(), entry.value().clone());
  return copy;
}

void expect_equal(const StateDict& one, const StateDict& other, const std::string& what) {
  EXPECT_EQ(one.size(), other.size()) << what;
  for (const auto& entry : one)
    EXPECT_TRUE(at::equal(entry.value(), other.at(entry.key()))) << what << ", " << entry.key();
}

void fill(const StateDict& state, double value) {
  for (const auto& entry : state)
    if (entry.key() != "param_groups") at::Tensor(entry.value()).fill_(value);
}

template <template <class> class Parallel>
void expect_copies(TestRank& rank, const std::string& kind) {
  using Model = TrainedNet<Parallel>;
  const OptimizerOf make = optimizer_of_kind(kind);
  Model model(rank, make, 1), plain(rank, make, 1);
  for (Model* one : {&model, &plain})
    one->step(0);
  // Training must not change a saved state, and changes of the saved state must not reach the
  // model.
  const StateDict values = model.values(), moments = model.moments();
  const StateDict values_then = copy_of(values), moments_then = copy_of(moments);
  for (Model* one : {&model, &plain})
    one->step(1);
  expect_equal(values, values_then, kind + ": saved parameters after the next step");
  expect_equal(moments, moments_then, kind + ": saved moments after the next step");
  fill(values, 9);
  fill(moments, 9);
  expect_equal(model.values(), plain.values(), kind + ": the model, as its saved state is changed");
  expect_equal(model.moments(), plain.moments(), kind + ": its moments");
  // Training must not change a loaded state, and changes of the loaded state must not reach the
  // model.
  const StateDict loaded_values = copy_of(values_then), loaded_moments = copy_of(moments_then);
  model.load(loaded_values, loaded_moments);
  plain.load(values_then, moments_then);
  for (Model* one : {&model, &plain})
    one->step(2);
  expect_equal(loaded_values, values_then, kind + ": loaded parameters after the next step");
  expect_equal(loaded_moments, moments_then, kind + ": loaded moments after the next step");
  fill(loaded_values, 9);
  fill(loaded_moments, 9);
  for (Model* one : {&model, &plain})
    one->step(3);
  expect_equal(model.values(), plain.values(), kind + ": the model, as its loaded state changes");
}

MULTI_RANK_TEST(LoadedState, saved_and_loaded_states_share_no_memory_with_the_model) {
  run_ranks(world_size(), [](TestRank& rank) {
    for (const std::string& kind : kKinds) {
      expect_copies<FullyShardedDataParallel>(rank, kind);
      expect_copies<DistributedDataParallel>(rank, kind);
    }
  });
}

// Loads a state that was saved before the first step, so it has no moments, into an optimizer that
// has made steps. The optimizer must drop its own moments.
template <template <class> class Parallel>
void expect_begun_anew(TestRank& rank, const std::string& kind) {
  using Model = TrainedNet<Parallel>;
  const OptimizerOf make = optimizer_of_kind(kind);
  Model begun(rank, make, 1), stepped(rank, make, 9);
  stepped.step(5);
  stepped.step(6);
  stepped.load(begun.values(), begun.moments());
  expect_equal(stepped.moments(), begun.moments(), kind + ": the moments that were loaded");
  for (int number = 0; number < 2; ++number) {
    begun.step(number);
    stepped.step(number);
  }
  expect_equal(stepped.values(), begun.values(), kind + ": the parameters after two steps");
  expect_equal(stepped.moments(), begun.moments(), kind + ": the moments after two steps");
}

MULTI_RANK_TEST(LoadedState,
                loading_a_state_saved_before_the_first_step_drops_the_moments_of_the_optimizer) {
  run_ranks(world_size(), [](TestRank& rank) {
    for (const std::string& kind : kKinds) {
      expect_begun_anew<FullyShardedDataParallel>(rank, kind);
      expect_begun_anew<DistributedDataParallel>(rank, kind);
    }
  });
}

}  // namespace
}  // namespace fsdp
