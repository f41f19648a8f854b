#include <reproduce/pairwise.h>
#include <reproduce/tables.h>

#include <array>

namespace fsdp {
namespace {

struct Factor {
  std::string name;                 // column
  std::vector<std::string> values;  // as shown
};

enum {
  kWorld,
  kModel,
  kBackend,
  kMeta,
  kPrefetch,
  kReshard,
  kLimit,
  kWrap,
  kClip,
  kOptimizer,
  kDecay
};

const std::vector<Factor> kFactors{
    {"W", {"2", "3", "4", "8"}}, {"model", {"small", "tiny"}},
    {"net", {"shm", "gloo"}},    {"meta", {"on", "off"}},
    {"pref", {"on", "off"}},     {"resh", {"on", "off"}},
    {"k", {"1", "2", "3"}},      {"wrap", {"block", "none", "type", "size"}},
    {"clip", {"off", "0.1"}},    {"opt", {"adamw", "sgd"}},
    {"grp", {"1", "2"}}};

using Setting = std::array<std::string, 11>;  // a value of each factor, in order

void append(TrainOptions& options, const TrainOptions& more) {
  options.insert(options.end(), more.begin(), more.end());
}

std::string wrap_of(const Setting& setting) {
  const bool tiny = setting[kModel] == "tiny";
  if (setting[kWrap] == "type") return "type:CausalAttention";
  if (setting[kWrap] == "size") return tiny ? "size:16000" : "size:1000000";
  return setting[kWrap];
}

// What single, ddp and fsdp have to agree on.
TrainOptions common_options(const std::string& mode, const Setting& setting) {
  TrainOptions options{"--mode",      mode,
                       "--world",     setting[kWorld],
                       "--model",     setting[kModel] == "tiny" ? "gpt2-tiny" : "small",
                       "--recipe",    "published",
                       "--batch",     "24",
                       "--steps",     "3",
                       "--optimizer", setting[kOptimizer]};
  if (setting[kOptimizer] == "sgd") append(options, {"--lr", "0.1"});
  if (setting[kDecay] == "2") append(options, {"--no-decay", "ln|bias|embed|wpe"});
  if (setting[kClip] != "off") append(options, {"--clip", setting[kClip]});
  return options;
}

TrainOptions ddp_options(const Setting& setting) {
  TrainOptions options = common_options("ddp", setting);
  append(options, {"--backend", setting[kBackend]});
  return options;
}

TrainOptions fsdp_options(const Setting& setting) {
  TrainOptions options = common_options("fsdp", setting);
  append(options, {"--wrap", wrap_of(setting), "--backend", setting[kBackend], "--meta-init",
                   setting[kMeta], "--prefetch", setting[kPrefetch], "--reshard-after-forward",
                   setting[kReshard], "--limit", setting[kLimit]});
  return options;
}

// Equal parameters, losses and norms.
bool same(const TrainResult& a, const TrainResult& b) {
  bool equal = a.hash() == b.hash() && a.steps.size() == b.steps.size();
  for (size_t step = 0; equal && step < a.steps.size(); ++step) {
    equal = a.loss(step) == b.loss(step) &&
            a.steps[step].at("grad_norm") == b.steps[step].at("grad_norm");
  }
  return equal;
}

}  // namespace

Table matrix_table(const Train& train) {
  Table table;
  table.title = "Matrix: FSDP against one process and DDP, batch 24, 3 steps";
  std::vector<size_t> counts;
  for (const Factor& factor : kFactors) {
    table.header.push_back(factor.name);
    counts.push_back(factor.values.size());
  }
  table.header.emplace_back("sha256");
  for (const auto& row : pairwise_cover(counts)) {
    Setting setting;
    for (size_t i = 0; i < row.size(); ++i)
      setting[i] = kFactors[i].values[row[i]];
    const std::vector<std::string> cells(setting.begin(), setting.end());
    table.add(cells, [&] {
      const auto& single = train(common_options("single", setting));
      const auto& ddp = train(ddp_options(setting));
      const auto& fsdp = train(fsdp_options(setting));
      Line line{cells, same(fsdp, single) && same(ddp, single)};
      line.cells.push_back(fsdp.hash().substr(0, 8));
      return line;
    });
  }
  table.notes.emplace_back(
      "Every two values of every two columns meet in some line. A line is ok if fsdp, single and "
      "ddp give the same parameters, losses and gradient norms, to the bit. tiny: gpt2-tiny, which "
      "has a tied head and odd sizes; meta: deferred initialization; pref: prefetch; resh: reshard "
      "after forward; k: limit; type: each attention is a unit; size: units of 1 MB, for tiny of 16 "
      "kB; grp: parameter groups, the second one without weight decay.");
  return table;
}

}  // namespace fsdp
