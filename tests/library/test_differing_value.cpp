#include <ATen/autocast_mode.h>
#include <agreement/same_on_all_ranks.h>

#include <common/expect_text.h>
#include <library/models.h>
#include <library/one_process.h>

// Tests the error that ranks get if values differ between them.
namespace fsdp {
namespace {

using Comm = std::shared_ptr<Communicator>;

MULTI_RANK_SUITE_ON(DifferingValue, 2, 3, 4);

// Returns a text such as "USUAL on ranks 0, 2, OTHER on rank 1": rank `odd` has the value `other`,
// and all other ranks have `usual`.
std::string on_ranks(const TestRank& rank, int odd, const std::string& usual,
                     const std::string& other) {
  std::string of_usual;
  int count = 0;
  for (int i = 0; i < rank.world_size(); ++i)
    if (i != odd) of_usual += (count++ > 0 ? ", " : "") + std::to_string(i);
  of_usual = usual + (count > 1 ? " on ranks " : " on rank ") + of_usual;
  const std::string of_odd = other + " on rank " + std::to_string(odd);
  return odd == 0 ? of_odd + ", " + of_usual : of_usual + ", " + of_odd;
}

// The large tensor has so many elements that the search for the first difference takes several
// rounds.
MULTI_RANK_TEST(DifferingValue, the_error_names_the_first_element_that_differs_between_ranks) {
  in_each_strategy(world_size(), [](TestRank& rank, const Comm& comm) {
    const int odd = rank.world_size() - 1;
    const auto expect = [&](at::Tensor values, const std::function<void(at::Tensor&)>& change,
                            const std::string& says) {
      if (rank.rank() == odd) change(values);
      std::vector<RankInvariant> traits;
      add_values(traits, "buffer", {{"other", at::ones({3})}, {"b", values}}, "fill it alike");
      const std::string error =
          error_of([&] { check_same_on_all_ranks(*comm, traits, "somewhere"); });
      EXPECT_EQ(error,
                "somewhere: ranks differ in the values of buffer b: " + says + "; fill it alike");
    };
    const at::Tensor large = at::arange(70 * 90, at::kFloat).view({70, 90});
    expect(
        large.clone(),
        [](at::Tensor& t) {
          t[61][7] = 0.1F;
          t[69][89] = 0;
        },
        "element [61, 7] is " + on_ranks(rank, odd, "5497", "0.100000001"));
    expect(
        large.clone().t(), [](at::Tensor& t) { t[0][0] = -0.0F; },
        "element [0, 0] is " + on_ranks(rank, odd, "0", "-0"));
    expect(
        at::zeros({}, at::kDouble), [](at::Tensor& t) { t.fill_(1. / 3); },
        on_ranks(rank, odd, "0", "0.33333333333333331"));
    expect(
        at::zeros({4}, at::kLong), [](at::Tensor& t) { t[3] = -7; },
        "element [3] is " + on_ranks(rank, odd, "0", "-7"));
    expect(
        at::zeros({2}, at::kBool), [](at::Tensor& t) { t[1] = true; },
        "element [1] is " + on_ranks(rank, odd, "0", "1"));
    expect(
        at::ones({2}, at::kBFloat16), [](at::Tensor& t) { t[0] = 2.5; },
        "element [0] is " + on_ranks(rank, odd, "1", "2.5"));
    expect(
        at::zeros({2}, at::kComplexFloat), [](at::Tensor& t) { t[1] = c10::complex<float>(1, 2); },
        "element [1] is " + on_ranks(rank, odd, "0 + 0i", "1 + 2i"));
    expect(
        at::zeros({2}), [](at::Tensor& t) { t = at::zeros({2}, at::kDouble); },
        on_ranks(rank, odd, "Float [2]", "Double [2]"));
  });
}

MULTI_RANK_TEST(
    DifferingValue,
    the_error_shows_hashes_if_an_element_is_a_different_kind_of_nan_on_different_ranks) {
  run_ranks(world_size(), [](TestRank& rank) {
    at::Tensor values = at::zeros({3});
    values.view(at::kInt)[2] = rank.rank() == 0 ? 0x7fc00000 : 0x7fc00001;
    std::vector<RankInvariant> traits;
    add_values(traits, "buffer", {{"b", values}}, "fill it alike");
    const std::string error =
        error_of([&] { check_same_on_all_ranks(*rank.communicator(), traits, "somewhere"); });
    EXPECT_CONTAINS(error, "element [2] is hash ");
  });
}

// Backward compares only a sample of the values; the error still names an element of the parameter.
MULTI_RANK_TEST(DifferingValue, if_replicas_have_diverged_backward_names_a_differing_element) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto net = block_net(1, 1);
    DistributedDataParallel model(*net, rank.communicator());
    if (rank.rank() == 1) net->blocks[0]->linear->weight.detach()[3][5] = 9;
    const std::string weight =
        std::to_string(net->blocks[0]->linear->weight[3][5].item<float>()).substr(0, 4);
    const std::string error = error_of([&] { loss_of(*net, rank).backward(); });
    EXPECT_CONTAINS(error, "the values of parameter b0.linear.weight: element [3, 5] is ");
    EXPECT_CONTAINS(error, rank.rank() == 1 ? "9 on rank 1" : weight);
  });
}

}  // namespace
}  // namespace fsdp
