#include <strategy/fsdp_strategy.h>
#include <train/options.h>
#include <train/trainer.h>
#include <wrap_policy.h>

#include <cstdio>

int main(int argc, char** argv) {
  try {
    const auto config = fsdp::parse_train_options(
        argc, argv, [](const std::string& wrap) { fsdp::parse_wrap_policy(wrap); });
    return fsdp::run_training(config, {fsdp::make_fsdp_strategy, fsdp::shard_layout});
  } catch (const fsdp::UsageError& error) {
    std::fprintf(stderr, "fsdp train: %s\n", error.what());
    return 2;
  }
}
