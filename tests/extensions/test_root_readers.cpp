#include <checkpoint_activations.h>
#include <data/dataset.h>
#include <nn/reads_in_calls.h>
#include <strategies/fsdp/fsdp_strategy.h>
#include <strategies/language_modeling.h>
#include <strategies/root_readers.h>
#include <torch/csrc/autograd/custom_function.h>
#include <unit_plan.h>
#include <wrap_policy.h>

#include <gtest/gtest.h>

#include <stdexcept>

#include <common/in_a_process.h>

#include "language_models.h"
#include "two_steps.h"

namespace fsdp {
namespace {

at::Tensor drawn(at::IntArrayRef sizes) {
  return at::randn(sizes) / 8;
}

// Computes x * weight. This module is not a unit, so its weight belongs to the root.
struct Gain : Module {
  at::Tensor forward(at::Tensor x) override { return x * weight; }
  at::Tensor weight = register_parameter("weight", drawn({kWidth}));  // [kWidth]
};

// Computes tanh(x weight^T). This module is a unit, because its name ends in "Block".
struct TanhBlock : Module {
  at::Tensor forward(at::Tensor x) override { return at::linear(x, weight).tanh(); }
  at::Tensor weight = register_parameter("weight", drawn({kWidth, kWidth}));
};

// Computes rows -> embedding -> block -> gain -> block -> norm -> head. The embedding and the head
// share a weight. The root unit has this weight and the weights of the gain and the norm. A reader
// of the root is a module whose backward reads a weight of the root: the gain, the norm and the
// head. An embedding does not read its weight in backward.
struct Ladder : Module {
  Ladder() {
    embedding = register_module("embedding", std::make_shared<Embedding>(drawn({10, kWidth})));
    first = register_module("first", std::make_shared<TanhBlock>());
    gain = register_module("gain", std::make_shared<Gain>());
    second = register_module("second", std::make_shared<TanhBlock>());
    norm = register_module("norm", std::make_shared<Gain>());
    head = register_module("head", std::make_shared<Linear>(embedding->weight()));
  }
  at::Tensor forward(at::Tensor rows) override {
    return (*head)((*norm)((*second)((*gain)((*first)((*embedding)(rows))))));
  }
  std::shared_ptr<Embedding> embedding;
  std::shared_ptr<Module> first, second, head;
  std::shared_ptr<Gain> gain, norm;
};

struct PromisingLadder : Ladder, ReadsInCalls {};

// A model in which a function also reads the weight of the head, before the blocks run.
struct LadderWithFunction : Ladder {
  at::Tensor forward(at::Tensor rows) override {
    const at::Tensor x = (*embedding)(rows);
    return Ladder::forward(rows) + at::linear(at::linear(x, head->parameters()[0]), drawn_once);
  }
  at::Tensor drawn_once = register_buffer("drawn_once", drawn({10, 10}));
};

at::Tensor rows() {
  return at::arange(6).view({2, 3});
}

ShardLayout layout_of(Module& model, const WrapPolicy& wrap = wrap_blocks()) {
  return plan_layout(model, plan_units(model, wrap), /*world_size=*/1);
}

// Lists the children of a model in the order in which their backward hooks run. Adds "unread" when
// the last reader of the root has run its backward, which is when the root can be resharded.
class Backward {
 public:
  explicit Backward(const std::shared_ptr<Module>& model, const WrapPolicy& wrap = wrap_blocks())
      : model_(model) {
    for (const auto& item : model->named_children())
      if (auto* module = dynamic_cast<Module*>(item.value().get()))
        module->register_full_backward_hook([this, name = item.key()](Module&) { note(name); });
    EXPECT_TRUE(when_root_is_unread(*model, layout_of(*model, wrap), [this] { note("unread"); }));
  }
  std::string of(const at::Tensor& loss, bool keeps_graph = false) {
    said_.clear();
    loss.backward({}, keeps_graph);
    return said_;
  }

 private:
  void note(const std::string& name) { said_ += (said_.empty() ? "" : " ") + name; }

  std::shared_ptr<Module> model_;
  std::string said_;
};

constexpr const char* kWhole = "head norm second gain unread first";
// The names of the modules whose backward hooks run in a backward pass, in this order, if the root
// is not reported as unread.
constexpr const char* kToTheEnd = "head norm second gain first";

TEST_IN_A_PROCESS(
    RootReader,
    the_root_unit_is_reported_unread_after_the_backward_of_the_last_module_that_reads_it) {
  const auto model = std::make_shared<PromisingLadder>();
  Backward backward(model);
  for (int step = 0; step < 2; ++step)
    EXPECT_EQ(backward.of((*model)(rows()).sum()), kWhole);
  EXPECT_EQ(units_before_root_readers(*model, layout_of(*model)), 1U);
}

TEST_IN_A_PROCESS(RootReader,
                  the_readers_of_a_language_models_root_are_its_norm_and_its_head_even_if_tied) {
  for (const auto& model : {tied_model(200), untied_model(20)}) {
    Backward backward(model);
    const at::Tensor tokens = at::ones({1, 4}, at::kLong);
    const std::string said = backward.of((*model)(tokens).sum());
    EXPECT_TRUE(said.starts_with("lm_head ln_f unread") ||
                said.starts_with("lm_head ln_final unread"))
        << said;
    EXPECT_EQ(units_before_root_readers(*model, layout_of(*model)), 3U);
  }
}

TEST_IN_A_PROCESS(
    RootReader,
    a_reader_of_the_root_that_ran_twice_must_run_its_backward_twice_before_the_root_is_unread) {
  const auto model = std::make_shared<PromisingLadder>();
  Backward backward(model);
  const at::Tensor one = (*model)(rows()).sum();
  const at::Tensor other = (*model)(rows() + 1).sum();
  EXPECT_EQ(backward.of(one + other), std::string(kToTheEnd) + " " + kWhole);
}

TEST_IN_A_PROCESS(
    RootReader,
    the_root_is_not_reported_unread_in_a_backward_pass_if_a_reader_ran_outside_the_loss) {
  const auto model = std::make_shared<PromisingLadder>();
  Backward backward(model);
  (*model->head)(at::ones({kWidth}).requires_grad_());
  EXPECT_EQ(backward.of((*model)(rows()).sum()), kToTheEnd);
  EXPECT_EQ(backward.of((*model)(rows()).sum()), kWhole);
}

TEST_IN_A_PROCESS(
    RootReader,
    the_root_is_not_reported_unread_in_backward_if_the_input_of_a_reader_needs_no_gradient) {
  const auto model = std::make_shared<PromisingLadder>();
  Backward backward(model);
  const at::Tensor beside = (*model->norm)(at::ones({kWidth})).sum();
  EXPECT_EQ(backward.of((*model)(rows()).sum() + beside), kToTheEnd);
}

TEST_IN_A_PROCESS(
    RootReader, the_root_is_unread_at_the_same_point_in_each_backward_pass_over_a_retained_graph) {
  const auto model = std::make_shared<PromisingLadder>();
  Backward backward(model);
  const at::Tensor loss = (*model)(rows()).sum();
  EXPECT_EQ(backward.of(loss, /*keeps_graph=*/true), kWhole);
  EXPECT_EQ(backward.of(loss), kWhole);
}

TEST_IN_A_PROCESS(RootReader,
                  the_root_is_not_reported_unread_in_the_first_backward_pass_after_one_that_threw) {
  const auto model = std::make_shared<PromisingLadder>();
  Backward backward(model);
  const at::Tensor loss = (*model)(rows()).sum();
  auto throws =
      model->norm->register_full_backward_hook([](Module&) { throw std::runtime_error("enough"); });
  EXPECT_THROW(loss.backward(), std::runtime_error);
  throws.remove();
  EXPECT_EQ(backward.of((*model)(rows()).sum()), kToTheEnd);
  EXPECT_EQ(backward.of((*model)(rows()).sum()), kWhole);
}

TEST_IN_A_PROCESS(
    RootReader,
    calls_of_root_readers_without_gradients_do_not_change_when_the_root_is_reported_unread) {
  const auto model = std::make_shared<PromisingLadder>();
  Backward backward(model);
  const at::Tensor loss = (*model)(rows()).sum();
  {
    const at::NoGradGuard no_grad;
    (*model)(rows());
  }
  EXPECT_EQ(backward.of(loss), kWhole);
}

// A module that contains a Gain, whose weight belongs to the root.
struct Around : Module {
  at::Tensor forward(at::Tensor x) override { return (*gain)(x); }
  std::shared_ptr<Gain> gain = register_module("gain", std::make_shared<Gain>());
};

struct LadderAround : Module, ReadsInCalls {
  at::Tensor forward(at::Tensor rows) override {
    return (*around)((*block)((*around)((*embedding)(rows))));
  }
  std::shared_ptr<Embedding> embedding =
      register_module("embedding", std::make_shared<Embedding>(drawn({10, kWidth})));
  std::shared_ptr<Around> around = register_module("around", std::make_shared<Around>());
  std::shared_ptr<TanhBlock> block = register_module("block", std::make_shared<TanhBlock>());
};

TEST_IN_A_PROCESS(RootReader,
                  activation_checkpointing_of_a_reader_does_not_change_when_the_root_is_unread) {
  const auto model = std::make_shared<PromisingLadder>();
  checkpoint_activations(*model->gain);
  Backward backward(model);
  EXPECT_EQ(backward.of((*model)(rows()).sum()), kWhole);
}

// Activation checkpointing as users write it: forward runs the module without gradients, and
// backward runs it again.
struct OwnCheckpoint : torch::autograd::Function<OwnCheckpoint> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            Module* module) {
    context->save_for_backward({x});
    context->saved_data["module"] = reinterpret_cast<int64_t>(module);
    return (*module)(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto* module = reinterpret_cast<Module*>(context->saved_data["module"].toInt());
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    const at::AutoGradMode enabled(true);
    (*module)(x).backward(gradients[0]);
    return {x.grad(), at::Tensor()};
  }
};

struct LadderWithOwnCheckpoint : PromisingLadder {
  at::Tensor forward(at::Tensor rows) override {
    const at::Tensor x = OwnCheckpoint::apply((*first)((*embedding)(rows)), gain.get());
    return (*head)((*norm)((*second)(x)));
  }
};

TEST_IN_A_PROCESS(
    RootReader,
    the_root_is_not_reported_unread_in_backward_if_a_user_checkpoints_a_reader_by_hand) {
  const auto model = std::make_shared<LadderWithOwnCheckpoint>();
  Backward backward(model);
  EXPECT_EQ(backward.of((*model)(rows()).sum()), kToTheEnd);
}

TEST_IN_A_PROCESS(
    RootReader,
    the_root_is_not_reported_unread_in_backward_if_a_reader_runs_in_an_inner_backward_pass) {
  const auto model = std::make_shared<PromisingLadder>();
  Backward backward(model);
  const at::Tensor x = at::ones({kWidth}).requires_grad_();
  const at::Tensor beside = (*model->norm)(x).sum();
  model->second->register_full_backward_hook([&](Module&) { beside.backward(); });
  EXPECT_EQ(backward.of((*model)(rows()).sum()), "head norm second norm gain first");
}

struct LadderWithForeignModule : PromisingLadder {
  torch::nn::Linear foreign = register_module("foreign", torch::nn::Linear(2, 2));
};
struct LadderWithOwnParameter : PromisingLadder {
  at::Tensor scale = register_parameter("scale", drawn({1}));
};

TEST_IN_A_PROCESS(
    RootReader,
    readers_of_the_root_are_known_only_for_a_model_with_reads_in_calls_and_hooks_on_its_children) {
  const auto is_known = [](const std::shared_ptr<Module>& model) {
    return when_root_is_unread(*model, layout_of(*model), [] {});
  };
  EXPECT_TRUE(is_known(std::make_shared<PromisingLadder>()));
  EXPECT_FALSE(is_known(std::make_shared<Ladder>()));
  EXPECT_FALSE(is_known(std::make_shared<LadderWithFunction>()));
  EXPECT_FALSE(is_known(std::make_shared<LadderWithForeignModule>()));
  EXPECT_FALSE(is_known(std::make_shared<LadderAround>()));
  const auto with_own = std::make_shared<LadderWithOwnParameter>();
  Backward backward(with_own);
  EXPECT_EQ(backward.of((*with_own)(rows()).sum()), kToTheEnd);
}

Workload workload_of_ladder(const std::function<std::shared_ptr<Module>()>& make) {
  const auto build = [make] {
    torch::manual_seed(5);
    return make();
  };
  const auto loss = [](Module& called, int microbatch, int microbatches, int64_t step) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(step));
    const at::Tensor batch = at::randint(0, 10, {12, 3}, generator, at::kLong);
    return called(to_device_of(called, batch.chunk(microbatches)[microbatch])).square().mean();
  };
  return {build, loss};
}

MULTI_RANK_SUITE(RootInBackward);

// In some of the models the root is resharded during backward; in the others it stays unsharded
// until the end. Each model is trained with resharding after forward and without it.
MULTI_RANK_TEST(RootInBackward,
                freeing_the_root_during_backward_matches_the_prediction_and_changes_no_bit) {
  const std::vector<std::function<std::shared_ptr<Module>()>> models{
      [] { return std::make_shared<PromisingLadder>(); },
      [] { return std::make_shared<Ladder>(); },
      [] { return std::make_shared<LadderWithFunction>(); },
      [] { return std::make_shared<LadderAround>(); },
      [] { return tied_model(200); },
      [] { return untied_model(20); },
      [] {
        auto model = std::make_shared<PromisingLadder>();
        checkpoint_activations(*model->gain);
        return model;
      }};
  for (size_t i = 0; i < models.size(); ++i) {
    SCOPED_TRACE("model " + std::to_string(i));
    const Workload workload = workload_of_ladder(models[i]);
    TrainConfig config = extension_config("fsdp", world_size());
    config.sharding.wrap = "block";
    const auto expected = hash_of_single(config, workload);
    for (const bool reshards : {true, false}) {
      config.sharding.reshard_after_forward = reshards;
      expect_as_predicted(config, workload, expected);
    }
    config.sharding.wrap = "none";
    expect_as_predicted(config, workload, expected);
    config.sharding.wrap = "block";
    config.sharding.reshard_after_forward = true;
    config.training.reduce_gradients = ReduceGradients::last;
    expect_as_predicted(config, workload, hash_of_single(config, workload));
  }
}

// The root of gpt2-36m takes 43.1 MB unsharded. If the root stayed unsharded until the end of
// backward, the peak would be 404.0 MB on two ranks and 270.8 MB on four. The expected peaks are
// lower by the 43.1 MB of the root.
TEST_IN_A_PROCESS(RootInPrediction,
                  the_root_of_a_language_model_is_not_unsharded_at_the_predicted_peak_of_a_step) {
  const auto peak = [](int world) {
    TrainConfig config;
    config.ranks.mode = Mode::fsdp;
    config.ranks.world = world;
    config.model.name = "gpt2-36m";
    config.data.kind = DataKind::pattern;
    config.training.batch = world;
    config.training.seq = 16;
    config.training.steps = 2;
    const Workload workload = language_modeling(
        config, make_pattern_dataset(/*vocabulary=*/20'000, config.training.seed));
    const ShardLayout layout = shard_layout(config, workload);
    const ModelTraces traces = trace_on_meta(config, workload, layout, construct_on_meta);
    const Schedule step = schedule(config, layout, /*rank=*/0, /*first=*/false, traces);
    return predict_memory(step, "shm").peak.bytes;
  };
  EXPECT_LE(peak(2).total, 361'000'000);
  EXPECT_LE(peak(4).total, 234'000'000);
}

}  // namespace
}  // namespace fsdp
