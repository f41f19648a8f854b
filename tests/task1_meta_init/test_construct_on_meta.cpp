#include <ATen/CPUGeneratorImpl.h>
#include <meta_init.h>

#include "constructions.h"

using namespace fsdp;

// This test of construct_on_meta() needs a solution of problem 1.3.

TEST(T1_3_construct_on_meta, construct_on_meta_draws_no_random_number_even_without_a_meta_kernel) {
  const std::string
      standard_moved = "construct_on_meta() moved the default generator, if this changed",
      own_moved =
          "construct_on_meta() moved the generator that the constructor brought, if this changed";
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    auto own = at::make_generator<at::CPUGeneratorImpl>(9);
    torch::manual_seed(5);
    const at::Generator& standard = at::detail::getDefaultCPUGenerator();
    rank.observe("default generator before", standard.get_state());
    rank.observe("own generator before", own.get_state());
    at::Tensor made;
    construct_on_meta([&] {
      made = torch::randperm(30);
      torch::randperm(30, own);
      torch::multinomial(torch::rand({8}).add(0.1), 3);
    });
    rank.observe("construct_on_meta() has made a tensor on", device_name(made));
    rank.observe(standard_moved, standard.get_state());
    rank.observe(own_moved, own.get_state());
  });
  expect_on_all_ranks(run, {{"construct_on_meta() has made a tensor on", "meta"},
                            {standard_moved, run.at(0, "default generator before")},
                            {own_moved, run.at(0, "own generator before")}});
}
