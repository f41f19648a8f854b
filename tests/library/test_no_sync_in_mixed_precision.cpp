#include <checkpoint_activations.h>
#include <common/expect_text.h>

#include <library/models.h>
#include <library/one_process.h>

#include <map>
#include <optional>

// In no_sync(), gradients are accumulated in fp32 if param_dtype and reduce_dtype differ, otherwise
// in their common dtype.
namespace fsdp {
namespace {

constexpr MixedPrecisionPolicy kWide{at::kBFloat16, at::kFloat};

std::vector<MixedPrecisionPolicy> policies() {
  std::vector<MixedPrecisionPolicy> all;
  for (const auto param_dtype : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const auto reduce_dtype : {at::kFloat, at::kBFloat16, at::kHalf})
      all.push_back({param_dtype, reduce_dtype});
  return all;
}

std::string named(const MixedPrecisionPolicy& policy) {
  return std::string(dtype_name(policy.param_dtype)) + ", reduced in " +
         dtype_name(policy.reduce_dtype);
}

// A model with a block that is called twice, a block that only some backward passes use, and a
// block that computes in fp32.
struct MixedNet : Module {
  at::Tensor forward(at::Tensor x) override {
    x = (*twice)((*twice)(x));
    if (uses_spare) x = (*spare)(x);
    return (*fp32)(x.to(at::kFloat)).to(scale.scalar_type()) * scale;
  }
  std::shared_ptr<LayerBlock> twice = register_module("twice", std::make_shared<LayerBlock>());
  std::shared_ptr<LayerBlock> spare = register_module("spare", std::make_shared<LayerBlock>());
  std::shared_ptr<LayerBlock> fp32 = register_module("fp32", std::make_shared<LayerBlock>());
  at::Tensor scale = register_parameter("scale", at::randn({7}));
  bool uses_spare = true;
};

std::shared_ptr<MixedNet> mixed_net() {
  torch::manual_seed(1);
  return std::make_shared<MixedNet>();
}

// Runs forward and returns the loss for backward pass number `pass`. Only pass 1, the second one,
// uses the spare block.
at::Tensor loss_of_pass(MixedNet& net, int microbatch, int microbatches, int pass) {
  net.uses_spare = pass == 1;
  const at::Tensor x =
      batch_part(microbatch, microbatches, pass, {5, 7}).to(net.scale.scalar_type());
  return net(x).to(at::kFloat).square().mean();
}

// The gradients that one process computes from the backward passes of all ranks, by the name of the
// parameter. First the gradients of each rank are added in `sum_dtype`. For a sharded parameter,
// these sums are then added over ranks as a tree, and divided once by the number of ranks.
struct Expected {
  std::map<std::string, at::Tensor> means;  // mean gradients of the sharded parameters, over ranks
  // For each rank, the sums of the gradients that this rank has computed, of all parameters. The
  // test uses only the sums of the parameters of the ignored module: the gradients of these
  // parameters are not reduced, so each rank keeps a sum of its own.
  std::vector<std::map<std::string, at::Tensor>> of_own;
};

Expected expected_gradients(const MixedPrecisionPolicy& policy, at::ScalarType sum_dtype, int ranks,
                            int passes) {
  const auto net = mixed_net();
  for (const auto& part : {net->twice, net->spare})
    part->to(policy.param_dtype);
  net->scale.set_data(net->scale.detach().to(policy.param_dtype));
  Expected expected;
  std::map<std::string, std::vector<at::Tensor>> sent;
  for (int rank = 0; rank < ranks; ++rank) {
    std::map<std::string, at::Tensor> sums;
    for (int pass = 0; pass < passes; ++pass) {
      loss_of_pass(*net, rank, ranks, pass).backward();
      for (const auto& [name, parameter] : distinct_parameters(*net)) {
        const at::Tensor gradient = std::exchange(parameter.mutable_grad(), {});
        if (!gradient.defined()) continue;
        const bool ignored = name.starts_with("fp32");
        const at::Tensor wide = gradient.to(ignored ? at::kFloat : sum_dtype);
        at::Tensor& sum = sums[name];
        sum = sum.defined() ? sum + wide : wide;
      }
    }
    for (const auto& [name, sum] : sums)
      sent[name].push_back(sum.to(policy.reduce_dtype).to(at::kFloat));
    expected.of_own.push_back(sums);
  }
  for (const auto& [name, sums] : sent)
    expected.means[name] = sum_as_tree(sums).div(ranks);
  return expected;
}

struct Arrangement {
  std::string name;
  bool checkpointed{}, reshards{true}, leaves_before{true};
};
const std::vector<Arrangement> kArrangements{{"as it is"},
                                             {"checkpointed", true},
                                             {"stays unsharded", false, false},
                                             {"leaves after the passes", false, true, false}};

void expect_gradients(TestRank& rank, const std::shared_ptr<Communicator>& comm,
                      const MixedPrecisionPolicy& policy, int passes,
                      const Arrangement& arrangement) {
  const auto net = mixed_net();
  if (arrangement.checkpointed)
    for (const auto& part : {net->twice, net->spare})
      checkpoint_activations(*part);
  // Hides the warning about the trainable ignored module.
  const WarningsOf warnings;
  FullyShardedDataParallel model(*net, comm,
                                 {.reshard_after_forward = arrangement.reshards,
                                  .ignored = {net->fp32.get()},
                                  .mixed_precision = policy});
  if (arrangement.leaves_before) model.parameters();
  for (int pass = 0; pass < passes; ++pass) {
    std::optional<NoSync> no_sync;
    if (pass + 1 < passes) no_sync = model.no_sync();
    loss_of_pass(*net, rank.rank(), rank.world_size(), pass).backward();
  }
  for (const at::Tensor& parameter : model.parameters())
    parameter.detach().copy_(parameter.grad());
  const StateDict found = model.state_dict();
  const Expected expected =
      expected_gradients(policy, policy.accumulate_dtype(), rank.world_size(), passes);
  const auto& own = expected.of_own[static_cast<size_t>(rank.rank())];
  for (const auto& [name, parameter] : distinct_parameters(*net)) {
    const bool ignored = name.starts_with("fp32");
    EXPECT_TRUE(ignored ? at::equal(parameter.grad(), own.at(name))
                        : at::equal(found.at(name), expected.means.at(name)))
        << named(policy) << ", " << arrangement.name << ", " << passes << " passes, " << name;
  }
}

MULTI_RANK_SUITE(NoSyncInMixedPrecision);

MULTI_RANK_TEST(NoSyncInMixedPrecision,
                in_no_sync_gradients_accumulate_in_fp32_if_param_dtype_and_reduce_dtype_differ) {
  in_each_strategy(world_size(), [](TestRank& rank, const std::shared_ptr<Communicator>& comm) {
    for (const MixedPrecisionPolicy& policy : policies())
      for (const Arrangement& arrangement : kArrangements)
        expect_gradients(rank, comm, policy, 3, arrangement);
  });
}

MULTI_RANK_TEST(NoSyncInMixedPrecision,
                forty_bf16_backward_passes_in_no_sync_add_their_gradients_in_fp32) {
  run_ranks(world_size(), [](TestRank& rank) {
    expect_gradients(rank, rank.communicator(), kWide, 40, kArrangements[0]);
    const Expected in_bf16 = expected_gradients(kWide, at::kBFloat16, rank.world_size(), 40);
    const Expected in_fp32 = expected_gradients(kWide, at::kFloat, rank.world_size(), 40);
    EXPECT_FALSE(at::allclose(in_bf16.means.at("scale"), in_fp32.means.at("scale"), 1e-3, 0))
        << "sums in bf16 and fp32 are too close for this test";
  });
}

// zero_grad() and a backward that throws both drop the gradients that wait to be reduced.
MULTI_RANK_TEST(NoSyncInMixedPrecision,
                gradients_dropped_before_their_reduction_do_not_count_in_later_passes) {
  run_ranks(world_size(), [](TestRank& rank) {
    for (const bool thrown : {false, true}) {
      const auto net = mixed_net();
      FullyShardedDataParallel model(*net, rank.communicator(),
                                     {.ignored = {net->fp32.get()}, .mixed_precision = kWide});
      const auto pass = [&](int number) {
        return loss_of_pass(*net, rank.rank(), rank.world_size(), number);
      };
      model.parameters();
      {
        const NoSync no_sync = model.no_sync();
        pass(5).backward();
        if (thrown) {
          at::Tensor loss = pass(6);
          const auto hook = net->twice->linear->weight.register_hook(
              [](const at::Tensor&) -> at::Tensor { throw std::domain_error("no step"); });
          EXPECT_EQ(error_of<std::domain_error>([&] { loss.backward(); }), "no step");
          net->twice->linear->weight.remove_hook(hook);
        }
      }
      model.zero_grad();
      for (int number = 0; number < 3; ++number) {
        std::optional<NoSync> no_sync;
        if (number < 2) no_sync = model.no_sync();
        pass(number).backward();
      }
      for (const at::Tensor& parameter : model.parameters())
        parameter.detach().copy_(parameter.grad());
      const Expected expected = expected_gradients(kWide, at::kFloat, rank.world_size(), 3);
      const StateDict found = model.state_dict();
      for (const auto& [name, mean] : expected.means) {
        if (name.starts_with("fp32")) continue;  // skips the parameters of the ignored module
        EXPECT_TRUE(at::equal(found.at(name), mean)) << name;
      }
    }
  });
}

}  // namespace
}  // namespace fsdp
