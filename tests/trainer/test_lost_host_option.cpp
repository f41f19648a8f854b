#include <gtest/gtest.h>
#include <train/fewer_ranks.h>

#include <common/set_variables.h>

#include <regex>

#include "parsed.h"

// Tests the numbers of microbatches with which a run can continue after it has lost a host.
namespace fsdp {
namespace {

struct Machine {
  int hosts, ranks;
};

Variables variables_of(const Machine& machine) {
  return {{"RANK", "0"},
          {"WORLD_SIZE", std::to_string(machine.hosts * machine.ranks)},
          {"LOCAL_WORLD_SIZE", std::to_string(machine.ranks)},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", "29500"}};
}

Arguments options_with(int parts, const std::string& accumulate) {
  const std::string text = std::to_string(parts);
  return {"--mode",         "fsdp", "--strategy", "hybrid", "--on-lost-host",     "continue",
          "--microbatches", text,   "--batch",    text,     "--reduce-gradients", accumulate};
}

TEST(LostHostOption, the_options_that_the_error_of_on_lost_host_advises_are_accepted) {
  const std::regex parts_in("--microbatches ([0-9]+)"), way_in("--reduce-gradients (each|last)");
  int refused_ones = 0;
  for (const Machine machine : {Machine{2, 2}, Machine{3, 2}, Machine{2, 4}, Machine{4, 2}}) {
    const SetVariables set(variables_of(machine));
    const int world = machine.hosts * machine.ranks;
    for (const std::string accumulate : {"each", "last"}) {
      for (int parts = 2 * world; parts <= 8 * world; parts += world) {
        const std::string text = refusal(options_with(parts, accumulate));
        if (text == "accepted") continue;
        ++refused_ones;
        std::smatch match;
        const bool other_parts = std::regex_search(text, match, parts_in);
        if (other_parts) {
          EXPECT_EQ(refusal(options_with(std::stoi(match[1]), accumulate)), "accepted");
        }
        const bool other_way = std::regex_search(text, match, way_in);
        if (other_way) {
          EXPECT_EQ(refusal(options_with(parts, match[1])), "accepted");
        }
        EXPECT_TRUE(other_parts || other_way) << text;
      }
    }
  }
  EXPECT_GT(refused_ones, 0);
}

// docs/cluster.md has these machines and numbers of microbatches in a table.
TEST(LostHostOption, a_run_with_the_documented_microbatches_can_continue_after_it_lost_a_host) {
  for (const auto& [machine, parts] : std::vector<std::pair<Machine, int>>{
           {{2, 2}, 8}, {{3, 2}, 12}, {{2, 4}, 16}, {{4, 2}, 16}}) {
    const SetVariables set(variables_of(machine));
    const TrainConfig config = parse(options_with(parts, "last"));
    EXPECT_EQ(config.ranks.world, machine.hosts * machine.ranks);
    const int left = config.ranks.world - machine.ranks;
    // Three hosts of two ranks cannot divide 16 microbatches equally, so only two hosts continue.
    EXPECT_EQ(ranks_that_go_on(config, left), machine.hosts == 4 ? 4 : left) << machine.hosts;
  }
}

}  // namespace
}  // namespace fsdp
