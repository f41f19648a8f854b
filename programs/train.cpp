#include <shared/command_line.h>
#include <shared/commit.h>
#include <strategy/checkpoint_blocks.h>
#include <strategy/fsdp_strategy.h>
#include <strategy/wrap_option.h>
#include <train/options.h>
#include <train/trainer.h>

int main(int argc, char** argv) {
  const std::string program = "fsdp train";
  return fsdp::run_program(program, [&] {
    auto config = fsdp::parse_train_options(
        argc, argv, [](const std::string& wrap) { fsdp::wrap_policy_of(wrap); });
    if (!config.json.empty()) config.commit = fsdp::current_commit();
    return fsdp::run_training(
        config, {fsdp::make_fsdp_strategy, fsdp::shard_layout, fsdp::checkpoint_blocks}, program);
  });
}
