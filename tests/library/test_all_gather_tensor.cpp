#include <all_gather_tensor.h>
#include <full_tensor.h>

#include <common/expect_text.h>
#include <library/models.h>
#include <library/one_process.h>

namespace fsdp {
namespace {

MULTI_RANK_SUITE(AllGatherTensor);

constexpr int64_t kRows = 3;

at::Tensor rows_of(int rank, int world) {
  return batch_part(rank, world, 0, {kRows, 7});
}

// Returns the loss of the rows `own`, which are the rows [begin, begin + kRows) of `all`. The loss
// is low if each of these rows is more similar to itself than to all other rows.
at::Tensor contrastive_loss(const at::Tensor& all, const at::Tensor& own, int64_t begin) {
  return at::cross_entropy_loss(at::matmul(own, all.t()), at::arange(begin, begin + kRows));
}

MULTI_RANK_TEST(AllGatherTensor, a_loss_over_all_gather_tensor_has_the_gradients_of_one_process) {
  const int world = world_size();
  run_ranks(world, [&](TestRank& rank) {
    // One process computes the mean of the losses of all rows.
    const auto whole = block_net();
    std::vector<at::Tensor> embedded, losses;
    for (int i = 0; i < world; ++i)
      embedded.push_back((*whole)(rows_of(i, world)));
    const at::Tensor all = at::cat(embedded);
    for (int i = 0; i < world; ++i)
      losses.push_back(contrastive_loss(all, embedded[i], i * kRows));
    at::stack(losses).mean().backward();

    const auto net = block_net();
    FullyShardedDataParallel model(*net, rank.communicator());
    const at::Tensor own = model(rows_of(rank.rank(), world));
    const at::Tensor gathered = all_gather_tensor(own, rank.communicator(), "embeddings");
    EXPECT_TRUE(at::allclose(gathered, all));
    contrastive_loss(gathered, own, rank.rank() * kRows).backward();
    for (const auto& parameter : model.named_parameters()) {
      const at::Tensor gradient = full_tensor(parameter.value().grad());
      const at::Tensor of_whole = whole->named_parameters()[parameter.key()].grad();
      EXPECT_TRUE(at::allclose(gradient, of_whole, 1e-4, 1e-6)) << parameter.key();
      EXPECT_GT(of_whole.abs().max().item<double>(), 1e-4) << parameter.key();
    }
  });
}

MULTI_RANK_TEST(AllGatherTensor, backward_of_all_gather_tensor_sums_the_gradients_of_all_ranks) {
  run_ranks(world_size(), [](TestRank& rank) {
    const at::Tensor own = at::full({2, 3}, rank.rank() + 1.0, at::kFloat).requires_grad_();
    const at::Tensor all = all_gather_tensor(own, rank.communicator());
    EXPECT_EQ(all.sizes(), at::IntArrayRef({2 * rank.world_size(), 3}));
    EXPECT_EQ(all[-1][0].item<double>(), rank.world_size());
    (all * (rank.rank() + 1)).sum().backward();
    const int world = rank.world_size();
    EXPECT_TRUE(own.grad().equal(at::full({2, 3}, world * (world + 1) / 2.0)));
  });
}

MULTI_RANK_TEST(AllGatherTensor, all_gather_tensor_throws_for_a_tensor_of_dimension_0) {
  run_ranks(world_size(), [](TestRank& rank) {
    EXPECT_CONTAINS(error_of([&] { all_gather_tensor(at::ones({}), rank.communicator()); }),
                    "pass tensor.unsqueeze(0)");
  });
}

MULTI_RANK_TEST(AllGatherTensor, all_gather_tensor_throws_over_a_communicator_with_replicas) {
  run_ranks(world_size(), [](TestRank& rank) {
    if (rank.world_size() == 1) return;
    EXPECT_CONTAINS(error_of([&] { all_gather_tensor(at::ones({1}), rank.hybrid(1)); }),
                    "pass one of Communicator::create()");
  });
}

}  // namespace
}  // namespace fsdp
