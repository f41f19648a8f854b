#include <plan/search_text.h>
#include <plan/stack.h>
#include <plan/text.h>

#include <gtest/gtest.h>

#include <common/expect_text.h>
#include <common/in_a_process.h>
#include <sstream>

namespace fsdp {
namespace {

std::string answer(const std::vector<std::string>& options, const Ways& ways = {}) {
  const auto settings = parse_plan_options(options);
  const auto found = search(settings.configs.front(), settings.searched, settings.machine,
                            {layout_of, traces_of, *settings.memory});
  return text_of_search(settings, found, ways);
}

// Returns the options of a small search: one strategy and one number of rows, followed by the
// options `more`.
std::vector<std::string> small_with(const std::vector<std::string>& more) {
  std::vector<std::string> options{"--model",    "small", "--world", "4", "--search",
                                   "--strategy", "full",  "--rows",  "1"};
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

TEST_IN_A_PROCESS(SearchText,
                  the_first_line_of_a_search_names_the_model_the_ranks_their_memory_and_the_rows) {
  const std::string text = answer(small_with({"--memory", "1GB"}));
  EXPECT_TRUE(text.starts_with(
      "fsdp of small (4.709 million parameters) on 4 ranks, 1.000 GB each, rows of 256 tokens\n"
      "a row has the model's context, 256 tokens; --seq gives another number\n"))
      << text;
  EXPECT_LACKS(answer(small_with({"--memory", "1GB", "--seq", "64"})), "the model's context");
}

TEST_IN_A_PROCESS(SearchText,
                  if_times_are_unknown_a_search_prints_that_its_order_is_that_of_the_bytes) {
  const std::string by_bytes = "times are not known, so the order is that of bytes";
  EXPECT_CONTAINS(answer(small_with({"--memory", "1GB"})), by_bytes);
  const std::string timed =
      answer(small_with({"--memory", "1GB", "--flops", "1T", "--intra", "5us,1GB/s"}));
  EXPECT_LACKS(timed, by_bytes);
  EXPECT_CONTAINS(timed, "the fastest that fits:\n");
}

TEST_IN_A_PROCESS(SearchText,
                  the_text_of_a_search_that_finds_a_plan_has_the_train_command_of_the_plan) {
  const std::string text = answer(small_with({"--memory", "1GB", "--backend", "shm"}));
  EXPECT_CONTAINS(text,
                  "\n  ./fsdp train --model small --strategy full --mode fsdp --batch 4 "
                  "--world 4 --seq 256 ");
}

TEST_IN_A_PROCESS(SearchText,
                  a_search_that_finds_nothing_names_the_ranks_and_the_rows_with_which_plans_fit) {
  const std::string text = answer(small_with({"--memory", "10MB"}), {16, 32});
  EXPECT_CONTAINS(text, "none fits");
  EXPECT_CONTAINS(text, "plans fit on 16 ranks (--world 16)\n");
  EXPECT_CONTAINS(text, "plans fit with rows of 32 tokens (--seq 32)\n");
  EXPECT_LACKS(text, "./fsdp train");
}

TEST_IN_A_PROCESS(SearchText,
                  no_line_that_a_search_or_a_plan_prints_has_more_than_a_hundred_columns) {
  const std::string long_name =
      "llama:vocabulary=1000,context=256,d_model=256,layers=4,heads=4,d_ff=1024";
  const auto settings = parse_plan_options({"--model", long_name, "--machine", "8xA100-80GB"});
  const TrainConfig& config = settings.configs.front();
  std::istringstream all(answer(small_with({"--memory", "1GB", "--backend", "shm"})) +
                         answer(small_with({"--machine", "2xA100-80GB"})) +
                         answer(small_with({"--memory", "10MB"}), {16, 32}) +
                         text_of(plan_of(config, settings.machine), config, settings));
  for (std::string line; std::getline(all, line);)
    EXPECT_LE(line.size(), 100U) << line;
}

}  // namespace
}  // namespace fsdp
