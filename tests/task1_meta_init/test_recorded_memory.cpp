#include <meta_init.h>
#include <testing/expectations.h>
#include <testing/multi_rank.h>
#include <testing/retained_memory.h>

#include "constructions.h"

using namespace fsdp;

namespace {

namespace nn = torch::nn;

// Returns the sizes of each parameter of `module`: an object, name of the parameter -> sizes.
nlohmann::json sizes_of(const nn::Module& module) {
  nlohmann::json sizes;
  for (const auto& item : module.named_parameters())
    sizes[item.key()] = item.value().sizes().vec();
  return sizes;
}

// Returns the sum of the two numbers of bytes that RetainedMemory::taken() returned: those of
// tensors, and those of all other memory.
int64_t bytes_in(const nlohmann::json& taken) {
  return taken.at("tensors").get<int64_t>() + taken.at("besides").get<int64_t>();
}

}  // namespace

// This test is the sentinel of task 1: until it passes, the task gets no points. It compares no
// exact numbers of bytes, so a recording with other mistakes can pass it.
TEST(T1_1_memory, a_recorded_module_takes_no_memory) {
  const Construct construct = transformer_layer(test_choice<int64_t>("width", {640, 656, 700}));
  const RankRun eager = run_oracle([&](TestRank& rank) {
    const RetainedMemory memory;
    const auto layer = construct();
    rank.observe("memory taken", memory.taken());
    rank.observe("sizes of the parameters", sizes_of(*layer));
  });
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    const RetainedMemory memory;
    std::shared_ptr<nn::Module> layer;
    nlohmann::json during;
    const DeferredInit init([&] {
      layer = construct();
      during = memory.taken();
    });
    if (!layer) throw std::logic_error("the constructor did not run");
    rank.observe("memory taken during construction", during);
    rank.observe("memory taken", memory.taken());
    rank.observe("sizes of the parameters", sizes_of(*layer));
  });
  expect_on_rank(run, 0, "sizes of the parameters", eager.at(0, "sizes of the parameters"));
  const int64_t whole = bytes_in(eager.at(0, "memory taken"));
  EXPECT_GT(whole, 16'000'000) << "the measurement saw nothing";
  for (const std::string name : {"memory taken during construction", "memory taken"})
    EXPECT_LT(bytes_in(run.at(0, name)), whole / 2)
        << name << ", in bytes; eager construction takes " << whole << " for the same parameters";
}
