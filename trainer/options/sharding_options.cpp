#include <command_line/command_line.h>
#include <options/choices.h>
#include <options/groups.h>

namespace fsdp {
namespace {

// Adds the option `name`, which takes a number of units or "all", and stores it in `target`.
// Target: int or std::optional<int>.
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
      "which modules become units: block, none, type:NAME, size:BYTES, or auto: blocks, and "
      "modules as large as a block, such as an embedding (default auto)");
  const auto take_strategy_name = [&given](const std::string& text) {
    const auto names = strategy_names();
    given.strategy = names[index_of_word("--strategy", text, names, /*ignore_case=*/true)];
  };
  app.add_option_function<std::string>(
         "--strategy", take_strategy_name,
         "full (shard over all ranks), grad_op (keep units unsharded from forward to "
         "backward), no (a replica on each rank) or hybrid (a replica on each --shard-size "
         "neighbouring ranks); PyTorch's names work too (default full)")
      ->type_name("NAME");
  add_number(app, "--shard-size", given.shard_size, NumberRange<int64_t>{1, max_world},
             "ranks of a replica with --strategy hybrid; must divide the number of ranks (default: "
             "under a launcher, the ranks of a host)");
  add_on_off(app, "--reshard-after-forward", sharding.reshard_after_forward,
             "free each unit after its forward");
  add_on_off(app, "--prefetch", sharding.prefetch, "gather units before they are used");
  add_limit(
      app, "--limit", sharding.limit,
      "units that may be unsharded at a time, with the running one (default 2; 1: no prefetch)");
  add_limit(app, "--forward-limit", sharding.forward_limit,
            "the limit in forward (default --limit)");
  add_limit(app, "--backward-limit", sharding.backward_limit,
            "the limit in backward (default --limit)");
  add_on_off(app, "--meta-init", sharding.meta_init,
             "build the model on the meta device, then materialize it shard by shard");
}

}  // namespace fsdp
