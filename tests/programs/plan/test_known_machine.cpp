#include <command_line/run_program.h>
#include <plan/machines.h>
#include <plan/settings.h>

#include <gtest/gtest.h>

#include <common/expect_text.h>

namespace fsdp {
namespace {

TEST(KnownMachine, the_option_machine_sets_ranks_memory_links_and_flops) {
  const auto settings = parse_plan_options({"--machine", "4xA100-80GB", "--model", "small"});
  EXPECT_EQ(settings.configs.front().ranks.world, 4);
  EXPECT_EQ(settings.memory, 80'000'000'000);
  EXPECT_EQ(settings.machine.ranks_per_host, 4);
  EXPECT_EQ(settings.machine.within->bytes_per_second, 225e9);
  TrainConfig config = settings.configs.front();
  EXPECT_EQ(settings.machine.flops_of(config), 9.75e12);
  config.precision.policy = {at::kBFloat16, at::kBFloat16};
  EXPECT_EQ(settings.machine.flops_of(config), 156e12);
}

TEST(KnownMachine, other_options_replace_values_of_the_option_machine) {
  const auto settings =
      parse_plan_options({"--machine", "8xH100-80GB", "--model", "small", "--world", "16",
                          "--memory", "70GB", "--flops", "300T", "--inter", "1us,1GB/s"});
  EXPECT_EQ(settings.configs.front().ranks.world, 16);
  EXPECT_EQ(settings.memory, 70'000'000'000);
  EXPECT_EQ(settings.machine.flops_of(settings.configs.front()), 300e12);
  EXPECT_EQ(settings.machine.between->bytes_per_second, 1e9);
  EXPECT_EQ(settings.machine.within->bytes_per_second, 337.5e9);
}

TEST(KnownMachine, an_unknown_machine_is_refused_and_the_error_lists_the_known_machines) {
  const auto error = [](const std::string& text) {
    return error_of<UsageError>([&] { parse_machine(text); });
  };
  const std::string known =
      ": must be a number of GPUs and their name, such as 8xA100-80GB; known are A100-40GB, "
      "A100-80GB, H100-80GB, H200-141GB, RTX3090-24GB and RTX4090-24GB";
  EXPECT_EQ(error("8xB300"), "--machine 8xB300" + known);
  EXPECT_EQ(error("A100-80GB"), "--machine A100-80GB" + known);
  EXPECT_EQ(error("0xA100-80GB"), "--machine must be at least 1, not 0");
}

}  // namespace
}  // namespace fsdp
