#include <command_line/command_line.h>
#include <options/choices.h>
#include <options/groups.h>

namespace fsdp {
namespace {

// Adds an option that takes a number of units, or all. Target: int, or a std::optional of one.
template <typename Target>
void add_limit(CLI::App& app, const std::string& name, Target& target, const std::string& help) {
  const auto take = [&target, name](const std::string& text) {
    target =
        text == "all" ? kAllUnits : static_cast<int>(parse_number<int64_t>(name, text, {1, 1000}));
  };
  app.add_option_function<std::string>(name, take, help)->type_name("INT|all");
}

}  // namespace

void add_sharding_options(CLI::App& app, TrainConfig& config, GivenSharding& given, int max_world) {
  ShardingConfig& sharding = config.sharding;
  app.add_option(
      "--wrap", sharding.wrap,
      "units: block, none, type:NAME, size:BYTES, or auto: blocks, and what is as large as "
      "one, such as an embedding (default auto)");
  const auto take_strategy_name = [&given](const std::string& text) {
    const auto names = strategy_names();
    given.strategy = names[index_of_word("--strategy", text, names, /*ignore_case=*/true)];
  };
  app.add_option_function<std::string>(
         "--strategy", take_strategy_name,
         "full (shard over all ranks), grad_op (keep units gathered from forward to "
         "backward), no (a replica on each rank) or hybrid (a replica on every --shard-size "
         "neighbours); PyTorch's names too (default full)")
      ->type_name("NAME");
  add_number(app, "--shard-size", given.shard_size, NumberRange<int64_t>{1, max_world},
             "ranks of a replica in --strategy hybrid; they divide the ranks (default: under a "
             "launcher the ranks of a host)");
  add_on_off(app, "--reshard-after-forward", sharding.reshard_after_forward,
             "free units after forward");
  add_on_off(app, "--prefetch", sharding.prefetch, "gather units ahead of their use");
  add_limit(app, "--limit", sharding.limit,
            "units gathered at a time, the running one counted (default 2; 1: no prefetch)");
  add_limit(app, "--forward-limit", sharding.forward_limit,
            "the same in forward (default --limit)");
  add_limit(app, "--backward-limit", sharding.backward_limit,
            "the same in backward (default --limit)");
  add_on_off(app, "--meta-init", sharding.meta_init,
             "build the model without memory, then materialize it shard by shard");
}

}  // namespace fsdp
