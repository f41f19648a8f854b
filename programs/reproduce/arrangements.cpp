#include <reproduce/pairwise.h>
#include <reproduce/tables.h>

#include <cctype>

namespace fsdp {
namespace {

// A run of the small model on the published recipe.
struct Setting {
  std::string mode, world, parts, backend, prefetch, wrap, clip;
  std::string strategy;  // full, grad_op, no, or the ranks of a replica; "-": none is named
  std::string accumulate, checkpointed;
};

TrainOptions options_of(const Setting& setting) {
  TrainOptions options{"--mode",   setting.mode, "--world", setting.world, "--model", "small",
                       "--recipe", "published",  "--batch", setting.parts, "--parts", setting.parts,
                       "--steps",  "5"};
  const auto add = [&](const std::string& option, const std::string& value) {
    options.insert(options.end(), {option, value});
  };
  if (setting.clip != "off") add("--clip", setting.clip);
  add("--accumulate", setting.accumulate);
  add("--checkpoint-activations", setting.checkpointed);
  if (setting.backend != "-") add("--backend", setting.backend);
  if (setting.prefetch != "-") add("--prefetch", setting.prefetch);
  if (setting.wrap != "-") add("--wrap", setting.wrap);
  if (std::isdigit(setting.strategy[0]) != 0) {
    options.insert(options.end(), {"--strategy", "hybrid", "--shard-size", setting.strategy});
  } else if (setting.strategy != "-") {
    add("--strategy", setting.strategy);
  }
  return options;
}

// Those of a mode in which every two values of every two columns meet. Where the ranks can't be cut
// into such replicas, all of them are one.
std::vector<Setting> settings_of(const std::string& mode, const std::vector<std::string>& worlds,
                                 const std::string& parts,
                                 const std::vector<std::string>& strategies) {
  const bool fsdp = mode == "fsdp";
  const std::vector<std::string> backends{"shm", "gloo"}, prefetch{"on", "off"},
      wraps{"auto", "block", "none"}, clips{"off", "0.1"}, accumulate{"each", "last"},
      checkpointed{"none", "all", "every:2"};
  const auto one_unless = [](bool condition, const auto& values) {
    return condition ? values.size() : 1;
  };
  std::vector<Setting> settings;
  for (const auto& row :
       pairwise_cover({worlds.size(), one_unless(mode != "single", backends),
                       one_unless(fsdp, prefetch), one_unless(fsdp, wraps), clips.size(),
                       one_unless(fsdp, strategies), accumulate.size(), checkpointed.size()})) {
    const std::string& world = worlds[row[0]];
    const std::string strategy = fsdp ? strategies[row[5]] : "-";
    const bool does_not_fit =
        std::isdigit(strategy[0]) != 0 && std::stoi(world) % std::stoi(strategy) != 0;
    settings.push_back({mode, world, parts, mode == "single" ? "-" : backends[row[1]],
                        fsdp ? prefetch[row[2]] : "-", fsdp ? wraps[row[3]] : "-", clips[row[4]],
                        does_not_fit ? world : strategy, accumulate[row[6]], checkpointed[row[7]]});
  }
  return settings;
}

// The run of one process that has to end with the same parameters.
Setting expected_of(const Setting& setting) {
  const bool any_world = setting.parts == "8";
  const bool one_replica = any_world || setting.strategy == "grad_op";
  Setting expected = setting;
  expected.mode = "single";
  expected.checkpointed = "none";
  if (any_world) {
    expected.world = "1", expected.accumulate = "each";
  }
  if (one_replica) {
    expected.strategy = "-";
  }
  expected.backend = expected.prefetch = expected.wrap = "-";
  return expected;
}

Line compared(const Train& train, const Setting& setting) {
  const TrainResult& run = train(options_of(setting));
  const int64_t mismatches = run.last.at("live_bytes_mismatches");
  const bool traffic = run.last.at("comm_bytes") == run.last.at("comm_bytes_predicted");
  return {
      {setting.mode, setting.world, setting.parts, setting.backend, setting.prefetch, setting.wrap,
       setting.strategy, setting.accumulate, setting.checkpointed, setting.clip,
       run.hash().substr(0, 8), std::to_string(mismatches),
       traffic ? "as predicted" : "NOT as predicted"},
      run.hash() == train(options_of(expected_of(setting))).hash() && mismatches == 0 && traffic};
}

}  // namespace

Table arrangements_table(const Train& train) {
  Table table;
  table.title = "Arrangements: small model, published recipe, 5 steps";
  table.header = {"mode", "W",    "L",    "net",    "pref",       "wrap",   "strategy",
                  "acc",  "ckpt", "clip", "sha256", "mismatches", "traffic"};
  const auto add = [&](const Setting& setting) {
    table.add({setting.mode, setting.world}, [&] { return compared(train, setting); });
  };
  for (const char* mode : {"single", "ddp", "fsdp"}) {
    for (const Setting& setting :
         settings_of(mode, {"1", "2", "4", "8"}, "8", {"full", "grad_op", "no", "2", "4"}))
      add(setting);
  }
  for (const char* mode : {"ddp", "fsdp"}) {
    for (const Setting& setting :
         settings_of(mode, {"3", "6"}, "12", {"full", "grad_op", "no", "2", "3"}))
      add(setting);
  }
  table.notes.emplace_back(
      "W ranks compute the L parts of a batch of L rows; every two values of every two columns meet "
      "in some line of a mode. A line is ok if live bytes (mismatches) and traffic are as predicted, "
      "and its parameters have the right hash. L = 8: that of one process that computes the eight "
      "parts, --mode single --world 1 --parts 8. Else that of single with the same W and strategy. "
      "With and without clipping, that is one hash each. acc: --accumulate; ckpt: "
      "--checkpoint-activations, none in the run of single that a line is compared with. A number "
      "in the column "
      "strategy: hybrid, replicas of so many ranks.");
  return table;
}

}  // namespace fsdp
