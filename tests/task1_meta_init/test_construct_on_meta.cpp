#include <ATen/CPUGeneratorImpl.h>
#include <meta_init.h>
#include <testing/multi_rank.h>
#include <testing/tensor_bits.h>

using namespace fsdp;

// What construct_on_meta() needs problem 1.3 for.

TEST(T1_3_construct_on_meta, construct_on_meta_draws_nothing_even_without_a_meta_kernel) {
  run_ranks(1, [](TestRank&) {
    auto own = at::make_generator<at::CPUGeneratorImpl>(9);
    torch::manual_seed(5);
    const at::Generator& standard = at::detail::getDefaultCPUGenerator();
    const at::Tensor before = standard.get_state(), own_before = own.get_state();
    bool redirected = false;
    construct_on_meta([&] {
      redirected = torch::randperm(30).is_meta();
      torch::randperm(30, own);
      torch::multinomial(torch::rand({8}).add(0.1), 3);
    });
    EXPECT_TRUE(redirected) << "construct_on_meta() has made nothing on the meta device";
    EXPECT_TRUE(same_bits(standard.get_state(), before))
        << "construct_on_meta() moved the default generator";
    EXPECT_TRUE(same_bits(own.get_state(), own_before))
        << "construct_on_meta() moved the generator that the constructor brought";
  });
}
