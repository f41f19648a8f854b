#include <command_line/commit.h>
#include <command_line/run_program.h>
#include <meta_init.h>
#include <options/options.h>
#include <strategies/fsdp/ddp_reduction.h>
#include <strategies/fsdp/fsdp_strategy.h>
#include <strategies/fsdp/wrap_option.h>
#include <train/trainer.h>

int main(int argc, char** argv) {
  const std::string program = "fsdp train";
  return fsdp::run_program(program, [&] {
    auto config = fsdp::parse_train_options(
        {argv + 1, argv + argc}, [](const std::string& wrap) { fsdp::wrap_policy_of(wrap); });
    if (!config.reports.json.empty()) config.reports.commit = fsdp::current_commit();
    return fsdp::run_training(
        config,
        {fsdp::make_fsdp_strategy, fsdp::shard_layout, fsdp::checkpoint_blocks,
         fsdp::construct_on_meta, fsdp::make_ddp_reduction},
        program);
  });
}
