#include <options/options.h>
#include <plan/stack.h>
#include <plan/train_command.h>

#include <gtest/gtest.h>

#include <common/expect_text.h>
#include <common/in_a_process.h>
#include <regex>
#include <sstream>

namespace fsdp {
namespace {

// Checks that `command` begins with "./fsdp train", and returns the words after it.
std::vector<std::string> words_of(const std::string& command) {
  std::istringstream in(std::regex_replace(command, std::regex("\\\\\n"), " "));
  std::vector<std::string> words;
  for (std::string word; in >> word;)
    words.push_back(word);
  EXPECT_EQ(words.at(0) + ' ' + words.at(1), "./fsdp train");
  return {words.begin() + 2, words.end()};
}

TEST_IN_A_PROCESS(TrainCommand, train_reads_the_command_as_the_run_that_was_planned) {
  const auto settings = parse_plan_options({"--model", "gpt2-tiny", "--world", "4",
                                            "--gpus-per-host", "4", "--optimizer", "adamw",
                                            "--search", "--memory", "1MB", "--backend", "shm"});
  const auto found = search(settings.configs.front(), settings.searched, settings.machine,
                            {layout_of, traces_of, *settings.memory});
  for (size_t i = 0; i < found.size(); i += 41) {
    const std::string command = train_command(settings, found[i].config, found[i].options);
    TrainParsing parsing;
    parsing.only_plans = true;
    const TrainConfig read = parse_train_options(
        words_of(command), [](const std::string&) {}, parsing);
    const Plan plan = plan_of(read, settings.machine);
    EXPECT_EQ(plan.peak.bytes.total, found[i].plan.peak.bytes.total) << command;
    EXPECT_EQ(plan.flops, found[i].plan.flops) << command;
  }
}

TEST(TrainCommand, the_command_of_a_plan_keeps_the_options_and_has_no_defaults_of_plan) {
  const auto command = [](const std::vector<std::string>& options) {
    const auto settings = parse_plan_options(options);
    return train_command(settings, settings.configs.front());
  };
  EXPECT_EQ(command({"--model", "small", "--world", "2", "--rows", "3", "--backend", "shm"}),
            "  ./fsdp train --model small --mode fsdp --batch 6 --world 2 --seq 256\n");
  EXPECT_EQ(command({"--model", "small", "--keep-fp32", "ln|head", "--param-dtype", "bf16", "--seq",
                     "8", "--mode", "ddp"}),
            "  ./fsdp train --device cuda --model small --keep-fp32 'ln|head' --param-dtype bf16 "
            "--seq 8 \\\n      --mode ddp --world 1\n");
}

TEST(TrainCommand, a_run_on_several_hosts_gets_the_command_of_torchrun) {
  const auto settings = parse_plan_options({"--model", "small", "--world", "16", "--seq", "8"});
  const std::string command = train_command(settings, settings.configs.front());
  EXPECT_CONTAINS(command, "torchrun --nnodes 2 --nproc-per-node 8 ");
  EXPECT_CONTAINS(command, "--no-python -- ./fsdp train --device cuda ");
  EXPECT_LACKS(command, "--world");
}

}  // namespace
}  // namespace fsdp
