#pragma once

#include <comm/tree_sum.h>
#include <ddp.h>
#include <testing/call_text.h>
#include <testing/multi_rank.h>
#include <testing/toy_model.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

// The tests of task 0 train a ToyModel on every rank. They use these losses, and compare the
// gradients with the means that one process computes.
namespace fsdp {

using MakeToy = std::function<std::shared_ptr<ToyModel>()>;
inline const MakeToy kReplicatedToy = [] { return std::make_shared<ToyModel>(3); };

// A function that returns the loss that rank `rank` computes. The tokens differ between ranks.
using Loss = std::function<at::Tensor(ToyModel& model, int rank)>;
inline const Loss kPlainLoss = [](ToyModel& model, int rank) {
  return model(toy_tokens(rank)).square().sum();
};

// Each bucket may have 60 elements (240 bytes). Each block of a ToyModel has 59 elements, the head
// 7 and the embedding 77. So the buckets of kReplicatedToy are: 0, blocks2; 1, blocks1; 2, blocks0;
// 3, the head; 4, the embedding.
inline constexpr BucketSizes kBucketOfABlock{4 * 60, 4 * 60};
inline constexpr const char* kFiveBuckets =
    "all_reduce bucket.0; all_reduce bucket.1; all_reduce bucket.2; all_reduce bucket.3; "
    "all_reduce bucket.4; ";

inline std::string gradient_of(const std::string& parameter) {
  return "gradient of " + parameter;
}

// Observes the .grad of each parameter that requires a gradient, under gradient_of(NAME).
inline void observe_gradients(TestRank& rank, const ToyModel& model) {
  for (const auto& [name, parameter] : distinct_parameters(model)) {
    if (!parameter.requires_grad()) continue;
    if (parameter.grad().defined())
      rank.observe(gradient_of(name), parameter.grad());
    else
      rank.observe(gradient_of(name), "no .grad");
  }
}

// Computes the mean gradients over W ranks in one process, and writes them to .grad of the model's
// parameters. Runs a backward pass over the loss of each rank, adds the gradients as a tree, and
// divides the sum by W.
inline void compute_means(ToyModel& model, int world_size, const Loss& loss) {
  const auto parameters = distinct_parameters(model);
  std::vector<std::vector<at::Tensor>> gradients(parameters.size());  // indices: [parameter][rank]
  for (int r = 0; r < world_size; ++r) {
    const at::Tensor of_rank = loss(model, r);
    if (of_rank.requires_grad()) of_rank.backward();
    for (size_t i = 0; i < parameters.size(); ++i) {
      at::Tensor& gradient = parameters[i].tensor.mutable_grad();
      gradients[i].push_back(gradient.defined() ? gradient : at::zeros_like(parameters[i].tensor));
      gradient.reset();
    }
  }
  for (size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].tensor.requires_grad())
      parameters[i].tensor.mutable_grad() = sum_as_tree(gradients[i]) / world_size;
}

// Compares the gradients that observe_gradients() observed with those of one process.
inline void expect_means(const RankRun& run, const Loss& loss = kPlainLoss,
                         const MakeToy& make = kReplicatedToy, const char* file = __builtin_FILE(),
                         int line = __builtin_LINE()) {
  const RankRun oracle = run_oracle([&](TestRank& rank) {
    const auto model = make();
    compute_means(*model, run.world_size(), loss);
    observe_gradients(rank, *model);
  });
  expect_as(run, oracle, file, line);
}

// A loss for which rank 0 does not call block 1. The other ranks call all blocks.
inline const Loss kBlockUnusedOnRank0 = [](ToyModel& model, int rank) {
  model.order = rank == 0 ? std::vector{0, 2} : std::vector{0, 1, 2};
  return kPlainLoss(model, rank);
};

// A loss that depends on no parameter on rank 0, so backward reaches none there.
inline const Loss kNothingOnRank0 = [](ToyModel& model, int rank) {
  return rank == 0 ? at::ones({3}).requires_grad_(true).sum() : kPlainLoss(model, rank);
};

// A loss for which odd ranks call the blocks in reverse order, so gradients become ready in another
// order there.
inline const Loss kReverseOrderOnOddRanks = [](ToyModel& model, int rank) {
  model.order = rank % 2 == 1 ? std::vector{2, 1, 0} : std::vector{0, 1, 2};
  return kPlainLoss(model, rank);
};

// A function that makes a ToyModel whose bias in block 1 requires no gradient.
inline const MakeToy kFrozenBias = [] {
  auto model = std::make_shared<ToyModel>(3);
  model->blocks[1]->bias.set_requires_grad(false);
  return model;
};

// A function that makes a ToyModel whose blocks 0 and 2 share their weight.
inline const MakeToy kTiedBlocks = [] {
  auto model = std::make_shared<ToyModel>(3);
  model->blocks[2]->tie_weight(model->blocks[0]->weight);
  return model;
};

}  // namespace fsdp
