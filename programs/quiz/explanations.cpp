#include <nn/models.h>
#include <plan/settings.h>
#include <plan/stack.h>
#include <quiz/explanations.h>
#include <quiz/scale.h>
#include <report/telemetry.h>

#include <cstdio>

namespace fsdp {
namespace {

template <typename... Values>
std::string formatted(const char* format, Values... values) {
  std::string text(static_cast<size_t>(std::snprintf(nullptr, 0, format, values...)), '\0');
  std::snprintf(text.data(), text.size() + 1, format, values...);
  return text;
}

double milliseconds(int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) * 1e-6;
}
double mega(int64_t bytes) {
  return static_cast<double>(bytes) * 1e-6;
}

// Returns the computation of the alpha-beta time that the collectives of `cost` take between
// `ranks` ranks on `link`: "2 x 7 x 10 us + 50.0 MB / 25 GB/s = 2.140 ms".
std::string link_time(const Link& link, int64_t ranks, const PhaseCost& cost) {
  const double latency = static_cast<double>(link.latency.count()) * 1e-3;
  const std::string calls = cost.calls == 1 ? "" : std::to_string(cost.calls) + " x ";
  return calls + formatted("%lld x %g us + %.1f MB / %g GB/s = %.3f ms",
                           static_cast<long long>(ranks - 1), latency, mega(cost.received),
                           link.bytes_per_second * 1e-9, milliseconds(cost.links));
}

// The model's units, without padding.
struct Units {
  int64_t blocks{}, block{};  // number of blocks, and [elements] of one
  int64_t root{};             // [elements]
  int64_t all() const { return blocks * block + root; }
};

Units units_of(const Question& question, const std::vector<std::string>& more) {
  const ShardLayout layout = layout_of(settings_with(question, more).configs.front());
  Units units;
  for (const auto& parameter : layout.parameters) {
    if (layout.units[parameter.unit].root) {
      units.root += parameter.numel;
    } else if (parameter.unit + 1 == layout.units.size()) {
      units.block += parameter.numel;
    }
  }
  units.blocks = static_cast<int64_t>(layout.units.size()) - 1;
  return units;
}

std::string text_of(const Units& units) {
  return formatted("The model has %lld blocks of %s elements, and a root of %s elements.\n",
                   static_cast<long long>(units.blocks), with_commas(units.block).c_str(),
                   with_commas(units.root).c_str());
}

const char* const kAlphaBeta =
    "The W ranks of a collective stand in a ring. An all-gather or a reduce-scatter is W - 1 hops, "
    "so it takes (W - 1) x latency + bytes received / bandwidth (the alpha-beta model). Let a unit "
    "have E elements, padded to a multiple of 16 W. Each has 2 bytes in bf16. A rank holds 1 / W "
    "of them and receives the others: (W - 1) / W x 2 E bytes.\n";

// Returns how to find the number of ranks at which the links need as long as a rank computes, if
// the bytes that a rank receives did not depend on the number of ranks.
std::string ranks_without_padding(const PhaseCost& backward, const Units& units,
                                  const Machine& machine) {
  const int64_t bytes = 2 * (2 * units.blocks * units.block + units.root);
  const double transfer = static_cast<double>(bytes) / machine.between->bytes_per_second * 1e3;
  const double latency = static_cast<double>(machine.between->latency.count()) * 1e-3;
  const double left = milliseconds(backward.computing) - transfer;
  const auto calls = static_cast<double>(backward.calls);
  return formatted(
      "To find W, first take 1 for (W - 1) / W: the links receive 2 x (2 x %lld x %s + %s) bytes = "
      "%.1f MB in backward, which takes %.3f ms. If the links need as long as a rank computes, %.3f "
      "- %.3f = %.3f ms are left for the latencies, %.0f x (W - 1) x %g us. This gives W = %.1f. Then "
      "try the whole numbers around it, with (W - 1) / W and with their padding.\n",
      static_cast<long long>(units.blocks), with_commas(units.block).c_str(),
      with_commas(units.root).c_str(), mega(bytes), transfer, milliseconds(backward.computing),
      transfer, left, calls, latency, 1 + left * 1e3 / (calls * latency));
}

GPT2Options shape_of(const PlanSettings& settings) {
  return std::get<GPT2Options>(model_shape(settings.configs.front().model.name));
}

}  // namespace

std::string explain_most_ranks(const Question& question, const nlohmann::json& answers) {
  const PlanSettings settings = settings_with(question);
  const Machine& machine = settings.machine;
  const GPT2Options shape = shape_of(settings);
  const int64_t most = answers.at("ranks");
  const std::vector<std::string> on_most{"--world", std::to_string(most)};
  const Units units = units_of(question, on_most);
  const Plan right = plan_with(question, on_most);
  const PhaseCost& backward = cost_of(right, Phase::backward);
  std::string text = kAlphaBeta + text_of(units);
  text += formatted(
      "Backward has 2 x %lld + 1 = %lld collectives: each block is gathered again and its gradient "
      "is reduced. The root stays gathered from forward to backward, so it is only reduced.\n",
      static_cast<long long>(units.blocks), static_cast<long long>(backward.calls));
  text += formatted(
      "A rank computes %.4g flops in backward (./fsdp plan): for each of its rows x seq tokens, 4 "
      "for each element of the matrices (12 x d_model^2 in a block, and vocabulary x d_model in the "
      "head), and in each block 10 x seq x d_model for attention. Here d_model is %lld, and the "
      "vocabulary has %lld tokens. At %.4g flops/s this takes %.3f ms, on any number of ranks.\n",
      static_cast<double>(backward.flops), static_cast<long long>(shape.d_model),
      static_cast<long long>(shape.vocabulary), machine.flops, milliseconds(backward.computing));
  text += ranks_without_padding(backward, units, machine);
  for (const int64_t ranks : {most, most + 1}) {
    const Plan plan = plan_with(question, {"--world", std::to_string(ranks)});
    text += formatted("W = %lld: the links need ", static_cast<long long>(ranks)) +
            link_time(*machine.between, ranks, cost_of(plan, Phase::backward)) +
            (ranks == most ? ", not longer than a rank computes: they are fast enough.\n"
                           : ", longer than a rank computes: they are too slow.\n");
  }
  return text +
         "With more ranks the latency grows. The bytes hardly grow, because (W - 1) / W is nearly 1 "
         "already. With more rows a rank computes longer, so the links are fast enough for more "
         "ranks. Section 3.3 of the FSDP paper (Zhao et al., VLDB 2023) shows how collectives "
         "overlap with computing.\n";
}

std::string explain_fewest_rows(const Question& question, const nlohmann::json& answers) {
  const Machine machine = settings_with(question).machine;
  const int64_t fewest = answers.at("rows");
  const BlockCost block = block_cost(question);
  const double of_row = static_cast<double>(block.flops_of_row) / machine.flops * 1e3;
  std::string text = kAlphaBeta;
  text +=
      "While one block computes its forward, the links gather the next block. Prefetch hides "
      "this if the forward takes at least as long as the all-gather.\n";
  text += "The all-gather of a block takes " +
          link_time(*machine.between, block.ranks,
                    {.calls = 1, .received = block.received, .links = block.gather}) +
          ".\n";
  text += formatted(
      "For one row, the forward of a block computes %.4g flops: for each of its seq tokens, 2 for "
      "each of the 12 x d_model^2 elements of the matrices, and 4 x seq x d_model in attention. At "
      "%.4g flops/s this takes %.5f ms.\n"
      "%.3f / %.5f = %.3f, rounded up to whole rows: %lld.\n",
      static_cast<double>(block.flops_of_row), machine.flops, of_row, milliseconds(block.gather),
      of_row, milliseconds(block.gather) / of_row, static_cast<long long>(fewest));
  for (const int64_t rows : {fewest - 1, fewest, 2 * fewest}) {
    if (rows == 0) continue;
    const Plan plan = plan_with(question, {"--rows", std::to_string(rows)});
    text += formatted("./fsdp plan: with --rows %lld a rank waits for %.3f ms in forward.\n",
                      static_cast<long long>(rows),
                      milliseconds(cost_of(plan, Phase::forward).waiting));
  }
  const double ranks = static_cast<double>(block.ranks);
  return text +
         "Twice as many rows wait for as long: this is the gathering of the root and of the first "
         "block, during which there is nothing to compute.\n" +
         formatted(
             "A rule of thumb, without latency and attention: for T tokens, a block of E elements "
             "computes 2 E T flops, and receives (W - 1) / W x 2 E bytes. Both take as long if 2 E "
             "T / (flops/s) = (W - 1) / W x 2 E / bandwidth. E cancels, so T = (W - 1) / W x "
             "(flops/s) / bandwidth. Here T = %.0f tokens; latency raises this number, and "
             "attention lowers it. ",
             (ranks - 1) / ranks * machine.flops / machine.between->bytes_per_second) +
         "Prefetch in forward is section 3.3.3 of the FSDP paper (Zhao et al., VLDB 2023).\n";
}

namespace {

// Returns for example "forward computes for 12.30 ms, its collectives take 30.10 ms, and the rank
// waits for 20.05 ms".
std::string text_of_phase(const std::string& phase, const PhaseCost& cost) {
  return formatted(
      "%s computes for %.2f ms, its collectives take %.2f ms, and the rank waits for %.2f ms",
      phase.c_str(), milliseconds(cost.computing), milliseconds(cost.links),
      milliseconds(cost.waiting));
}

std::string text_of(const Contender& one) {
  const Plan& plan = one.plan;
  return one.name + ": " + text_of_phase("forward", cost_of(plan, Phase::forward)) + "; " +
         text_of_phase("backward", cost_of(plan, Phase::backward)) +
         formatted(". A step takes %.2f ms. The peak is %.2f GB, which %s.\n", one.milliseconds,
                   static_cast<double>(plan.peak.bytes.total) * 1e-9,
                   one.fits ? "fits" : "does not fit");
}

// Returns which collectives each strategy has, and what a rank receives in them.
std::string collectives_of_strategies(const Units& units) {
  const auto blocks = static_cast<long long>(units.blocks), all = blocks + 1;
  return "Every rank has an --intra and an --inter link of its own. The collectives of full and of "
         "grad_op have ranks on both hosts, so they run over --inter.\n" +
         formatted(
             "full: forward gathers all %lld units: %lld x (W - 1) x latency, and (W - 1) / W x 2 N "
             "bytes. Backward gathers the %lld blocks again and reduces all units: %lld x (W - 1) x "
             "latency, and (W - 1) / W x 2 (2 N - R) bytes.\n",
             all, all, blocks, all + blocks) +
         formatted(
             "grad_op: units stay gathered from forward to backward. So forward is that of full, "
             "and backward only reduces: %lld x (W - 1) x latency, and (W - 1) / W x 2 N bytes.\n",
             all) +
         formatted(
             "hybrid: forward and backward are those of full, but among the G ranks of a host, so "
             "over --intra and with G in place of W. In addition, for each of the %lld units, "
             "backward adds up the gradients of the H ranks that hold the same shard, over --inter. "
             "These are fp32, N / G elements in all. Each sum is a reduce-scatter and an all-gather: "
             "%lld x 2 x (H - 1) x latency, and in all 2 x (H - 1) / H x 4 N / G bytes. A rank "
             "continues only when a sum has ended, so nothing overlaps with the sums.\n",
             all, all);
}

// Returns how many flops a rank computes in each phase.
std::string computing_of(const PlanSettings& settings) {
  const GPT2Options shape = shape_of(settings);
  const TrainConfig& config = settings.configs.front();
  const int64_t tokens = config.training.batch / config.ranks.world * config.training.seq;
  return formatted(
      "A rank has rows x seq = %lld tokens. In forward, each takes 2 flops for each element of the "
      "matrices (12 x d_model^2 in a block, and vocabulary x d_model in the head), and in each "
      "block 4 x seq x d_model for attention. In backward these are 4 and 10 x seq x d_model; and "
      "each block, which is checkpointed, computes its forward again. Here d_model is %lld, and the "
      "vocabulary has %lld tokens.\n",
      static_cast<long long>(tokens), static_cast<long long>(shape.d_model),
      static_cast<long long>(shape.vocabulary));
}

}  // namespace

std::string explain_fastest_strategy(const Question& question, const nlohmann::json& answers) {
  const PlanSettings settings = settings_with(question);
  const Units units = units_of(question, {});
  const int world = settings.configs.front().ranks.world, of_host = settings.machine.ranks_per_host;
  std::string text = formatted(
      "There are W = %d ranks, G = %d on each of H = %d hosts. The model has %lld blocks and the "
      "root: N = %.1f million elements in all, of which the root has R = %.1f million. In bf16 each "
      "has 2 bytes.\n",
      world, of_host, world / of_host, static_cast<long long>(units.blocks),
      static_cast<double>(units.all()) * 1e-6, static_cast<double>(units.root) * 1e-6);
  text += computing_of(settings) + collectives_of_strategies(units);
  for (const Contender& one : contenders(question))
    text += text_of(one);
  return text +
         "The links handle one collective at a time, in the order of issue. While a block computes, "
         "the next one is gathered or the one before is reduced. So a phase takes about as long as "
         "the longer of two things: its computing, or its collectives. With hybrid, the times of "
         "collectives above include the sums, which overlap with nothing: backward takes the sums "
         "and the longer of the other two. Each phase takes a few percent more, because at its "
         "beginning and at its end one of the two has nothing to do; ./fsdp plan counts this "
         "exactly.\n"
         "The peak decides which strategies are possible. A rank always holds its shards, fp32 and "
         "bf16 (6 N / W bytes), and both moments (8 N / W). full reaches its peak late in backward, "
         "when nearly all reduced gradients are there (4 N / W). grad_op reaches it at the beginning "
         "of backward, when all units are gathered (2 N) and hardly any gradient is reduced. hybrid "
         "has G in place of W in these terms. Section 3.2 of the FSDP "
         "paper (Zhao et al., VLDB 2023) compares full and hybrid sharding.\n" +
         formatted("So %s has the fastest step of the strategies that fit.\n",
                   answers.at("fastest").get<std::string>().c_str());
}

std::string explain_checkpoint_time(const Question& question, const nlohmann::json& answers) {
  const PlanSettings settings = settings_with(question);
  const int ranks = settings.configs.front().ranks.world;
  const int of_host = settings.machine.ranks_per_host;
  const int64_t bytes = checkpoint_bytes(plan_with(question));
  const double seconds = answers.at("seconds");
  const double all = static_cast<double>(bytes) * static_cast<double>(ranks);
  return formatted(
             "The model has %.1f billion parameters. Each has 4 bytes, and so has each of its two "
             "moments: 12 bytes, together %.1f GB. With full sharding (section 3.2.1 of the FSDP "
             "paper, Zhao et al., VLDB 2023) each of %d ranks has 1 / %d of it, %.4f GB. (./fsdp "
             "plan prints the parameters as shards, and the moments as optimizer_state.)\n",
             all / 12e9, all * 1e-9, ranks, ranks, static_cast<double>(bytes) * 1e-9) +
         formatted(
             "With %d ranks on each host, %d hosts write at the same time: %d x %g GB/s = %g GB/s.\n"
             "%.1f GB / %g GB/s = %.4g s.\n",
             of_host, ranks / of_host, ranks / of_host, question.amount,
             question.amount * ranks / of_host, all * 1e-9, question.amount * ranks / of_host,
             seconds);
}

}  // namespace fsdp
