#include <comm/call_observer.h>
#include <diff/hash_recorder.h>
#include <strategies/fsdp/fsdp_strategy.h>

#include <reference/trained.h>

namespace fsdp {
namespace {

using MakeStrategy = decltype(FsdpImplementation::make_strategy);

RunHashes hashes_of(TrainConfig config, MakeStrategy make = make_fsdp_strategy) {
  const TemporaryFolder folder;
  config.reports.hashes = folder.path() + "/hashes";
  trained(config, folder, {make, shard_layout, checkpoint_blocks});
  return read_hashes(config.reports.hashes);
}

void expect_equal(const RunHashes& a, const RunHashes& b) {
  const Comparison found = compare(a, b, /*cut_off=*/false);
  EXPECT_TRUE(!found.first) << place_of(*found.first, a, b);
  EXPECT_GT(found.equal, 500);
  EXPECT_EQ(found.left_out, std::vector<std::string>());
}

TEST(Diff, diff_finds_no_difference_between_runs_that_divide_their_microbatches_differently) {
  const RunHashes single = hashes_of(config_of({"single", 1}, 4, 2));
  const std::vector<Arranged> all{{"single", 4}, {"ddp", 2}, {"fsdp", 1}, {"fsdp", 4, 2}};
  for (const Arranged& how : all) {
    SCOPED_TRACE(named(how));
    expect_equal(single, hashes_of(config_of(how, 4, 2)));
  }
  TrainConfig config = config_of({"fsdp", 2}, 4, 2);
  config.sharding.reshard_after_forward = config.sharding.prefetch = config.sharding.meta_init =
      false;
  config.memory.activation_checkpoint_every = 1;
  config.training.reduce_gradients = ReduceGradients::last;
  expect_equal(single, hashes_of(config));
  expect_equal(hashes_of(config_of({"single", 3}, 3, 2)), hashes_of(config_of({"fsdp", 3}, 3, 2)));
}

// Returns an FSDP strategy whose model is wrong: on each rank, the function `Change` changes the
// model before it is sharded.
template <void (*Change)(Module& model, int rank)>
std::unique_ptr<Strategy> with(const TrainConfig& config, Workload workload,
                               std::shared_ptr<Communicator> comm) {
  workload.build = [build = workload.build, rank = comm->rank()] {
    auto model = build();
    Change(*model, rank);
    return model;
  };
  return make_fsdp_strategy(config, std::move(workload), std::move(comm));
}

void wrong_value(Module& model, int /*rank*/) {
  const at::NoGradGuard no_grad;
  model.named_parameters()["h.1.ln_2.weight"].mul_(2);
}

void wrong_output(Module& model, int rank) {
  auto& mlp = dynamic_cast<Module&>(*model.named_modules()["h.2.mlp"]);
  if (rank == 1) mlp.register_forward_hook([](Module&, const at::Tensor& x) { return x + 1; });
}

void wrong_gradient(Module& model, int rank) {
  const auto twice = [](const at::Tensor& gradient) { return gradient * 2; };
  if (rank == 1) model.named_parameters()["h.0.attn.c_attn.weight"].register_hook(twice);
}

// An observer that adds 1 to the result of each reduce-scatter of unit h.1.
class WrongReduction final : public CallObserver {
 public:
  void issued(const Call& call, const at::Tensor& output) override {
    if (call.operation == Operation::reduce_scatter && call.unit == "h.1") sum_ = output;
  }
  void waits(const Call&) override {}
  void waited(const Call& call, Moved) override {
    if (call.operation == Operation::reduce_scatter && call.unit == "h.1") sum_.add_(1);
  }

 private:
  at::Tensor sum_;
};

void wrong_reduction(Module& /*model*/, int /*rank*/) {
  static WrongReduction fault;
}

TEST(Diff, diff_names_the_unit_and_the_phase_of_the_first_difference_between_two_runs) {
  const std::vector<std::pair<MakeStrategy, std::string>> faults{
      {with<wrong_value>, "step 1, unit h.1, parameter before the first step: h.1.ln_2.weight"},
      {with<wrong_output>, "step 1, microbatch 1, unit h.2, output of forward: h.2.mlp"},
      {with<wrong_gradient>,
       "step 1, microbatch 1, unit h.0, gradient of the microbatch: h.0.attn.c_attn.weight"},
      {with<wrong_reduction>, "step 1, unit h.1, reduced gradient: h.1.ln_1.weight"}};
  const RunHashes right = hashes_of(config_of({"ddp", 2}, 2, 1));
  for (const auto& [make, place] : faults) {
    const RunHashes wrong = hashes_of(config_of({"fsdp", 2}, 2, 1), make);
    const Comparison found = compare(right, wrong, /*cut_off=*/false);
    EXPECT_EQ(found.first ? place_of(*found.first, right, wrong) : "nothing", place);
  }
}

TEST(Diff, diff_shows_a_differing_event_with_its_values_ranks_and_calls) {
  TrainConfig config = config_of({"fsdp", 2}, 2, 1);
  const EventKey key{0, -1, TensorKind::reduced, "h.1.ln_1.weight"};
  config.reports.captured_event = nlohmann::json(key).dump();
  const auto lines =
      differing_values(key, hashes_of(config), hashes_of(config, with<wrong_reduction>));
  ASSERT_EQ(lines.size(), 8U);
  EXPECT_TRUE(lines[0].starts_with("[0] "));
  EXPECT_EQ(lines[5], "35 of 35 elements differ, the last one is [34]");
  EXPECT_TRUE(lines[7].starts_with("b: rank 0, after #") &&
              lines[7].find("reduce_scatter h.1") != std::string::npos)
      << lines[7];
}

TEST(Diff, the_first_differing_element_of_a_gradient_has_its_value_in_each_microbatch) {
  TrainConfig config = config_of({"fsdp", 2}, 2, 1);
  const EventKey key{0, -1, TensorKind::reduced, "h.1.ln_1.weight"};
  config.reports.captured_event = nlohmann::json(key).dump();
  const RunHashes right = hashes_of(config), wrong = hashes_of(config, with<wrong_reduction>);
  const auto found = first_differing_element(key, right, wrong);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->index, "[0]");
  EXPECT_EQ(found->rank, 0);
  EXPECT_EQ(found->element, 0);
  EXPECT_EQ(found->right, -1);  // every element is wrong
  EXPECT_GT(found->b, found->a);
  ASSERT_EQ(found->of_microbatches.size(), 2U);
  const double mean = (found->of_microbatches[0] + found->of_microbatches[1]) / 2;
  EXPECT_NEAR(mean, found->a, 1e-6 * std::abs(mean));
  EXPECT_FALSE(first_differing_element(key, right, right));
}

TEST(Diff, diff_refuses_invalid_or_missing_hash_files_and_runs_with_different_settings) {
  const TemporaryFolder folder;
  EXPECT_THROW(read_hashes(folder.path()), std::runtime_error);
  EXPECT_THROW(read_hashes(folder.write("file", "[1]\n")), std::runtime_error);
  const std::string head = R"({"processes": 2, "settings": {}})";
  folder.write("rank.0", head + '\n');
  EXPECT_THROW(read_hashes(folder.path()), std::runtime_error) << "the file of rank 1 is missing";
  // The last line of the file of rank 1 is incomplete, as a rank that is killed leaves it.
  folder.write("rank.1", head + "\n{\"step\": 0, \"what");
  EXPECT_EQ(read_hashes(folder.path()).events.size(), 0U);
  EXPECT_THROW(compare({{{"seed", 1}}, {}}, {{{"seed", 2}}, {}}, false), std::invalid_argument);
}

}  // namespace
}  // namespace fsdp
