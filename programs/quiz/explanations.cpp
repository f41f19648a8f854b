#include <plan/settings.h>
#include <quiz/explanations.h>
#include <quiz/scale.h>

#include <cstdio>

namespace fsdp {
namespace {

template <typename... Values>
std::string formatted(const char* format, Values... values) {
  char text[600];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

double milliseconds(int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) * 1e-6;
}
double mega(int64_t bytes) {
  return static_cast<double>(bytes) * 1e-6;
}

// Returns the alpha-beta time of `calls` collectives of `ranks` ranks, each between hosts.
std::string link_time(const Link& link, int64_t ranks, const PhaseCost& cost) {
  const double latency = static_cast<double>(link.latency.count()) * 1e-3;
  return formatted("%lld x %lld x %g us + %.1f MB / %g GB/s = %.2f ms",
                   static_cast<long long>(cost.calls), static_cast<long long>(ranks - 1), latency,
                   mega(cost.received), link.bytes_per_second * 1e-9, milliseconds(cost.links));
}

const char* const kAlphaBeta =
    "In the alpha-beta model an all-gather or a reduce-scatter of W ranks takes (W - 1) x latency "
    "+ bytes received / bandwidth. Of a unit with P parameters, padding included, a rank receives "
    "(W - 1) / W x 2 P bytes in bf16.\n";

}  // namespace

std::string explain_most_ranks(const Question& question, const nlohmann::json& answers) {
  const Machine machine = settings_with(question).machine;
  const int64_t most = answers.at("ranks");
  std::string text = kAlphaBeta;
  for (const int64_t ranks : {most, most + 1}) {
    const Plan plan = plan_with(question, {"--world", std::to_string(ranks)});
    const PhaseCost& backward = cost_of(plan, Phase::backward);
    if (ranks == most)
      text += formatted(
          "Backward has %lld collectives: for each block an all-gather and a reduce-scatter; for "
          "the root, which is still gathered, only a reduce-scatter.\n"
          "A rank computes its backward in %.4g flops / %.4g flops/s = %.2f ms, on any number of "
          "ranks.\n",
          static_cast<long long>(backward.calls), static_cast<double>(backward.flops),
          machine.flops, milliseconds(backward.computing));
    text += formatted("On %lld ranks the links need ", static_cast<long long>(ranks)) +
            link_time(*machine.between, ranks, backward) +
            (ranks == most ? ", at most as long.\n" : ", longer.\n");
  }
  return text +
         "With more ranks only the latency grows, because the bytes are nearly those of all "
         "parameters already. With more rows a rank computes longer, so the links are fast enough "
         "for more ranks. Section 3.3 of the FSDP paper (Zhao et al., VLDB 2023) overlaps "
         "collectives with computing.\n";
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
      "The forward of a block computes %.4g flops for a row: for each token, 2 for each element of "
      "a matrix, and 4 x seq x d_model in attention. This takes %.4g ms.\n"
      "%.4g / %.4g = %.2f, so a rank needs %lld rows.\n",
      static_cast<double>(block.flops_of_row), of_row, milliseconds(block.gather), of_row,
      milliseconds(block.gather) / of_row, static_cast<long long>(fewest));
  for (const int64_t rows : {fewest - 1, fewest, 2 * fewest}) {
    if (rows == 0) continue;
    const Plan plan = plan_with(question, {"--rows", std::to_string(rows)});
    text += formatted("./fsdp plan: with --rows %lld a rank waits for %.3f ms in forward.\n",
                      static_cast<long long>(rows),
                      milliseconds(cost_of(plan, Phase::forward).waiting));
  }
  return text +
         "Without latency and attention, a block computes 2 P flops for a token and receives 2 P "
         "(W - 1) / W bytes. Then the tokens of a rank must be at least (W - 1) / W x flops/s / "
         "bandwidth, for blocks of every size. Prefetch in forward is section 3.3.3 of the FSDP "
         "paper (Zhao et al., VLDB 2023).\n";
}

std::string explain_fastest_strategy(const Question& question, const nlohmann::json& answers) {
  std::string text;
  for (const Contender& one : contenders(question)) {
    const Plan& plan = one.plan;
    text += formatted(
        "%s: a step takes %.2f ms, of which %.2f ms are waiting. The peak is %.2f GB, which %s. A "
        "rank receives %.1f MB within its host and %.1f MB from the other host.\n",
        one.name.c_str(), one.milliseconds, milliseconds(plan.time->waiting),
        static_cast<double>(plan.peak.bytes.total) * 1e-9, one.fits ? "fits" : "does not fit",
        mega(plan.within), mega(plan.between));
  }
  return text +
         "A collective whose ranks are on both hosts counts as bytes from the other host.\n"
         "W is the number of ranks, and M are the bytes of all parameters in bf16. full receives "
         "about 3 M (W - 1) / W in a step: it gathers in forward, gathers the blocks again in "
         "backward, and reduces. grad_op receives about 2 M (W - 1) / W, because units stay "
         "gathered until backward. hybrid, with "
         "G ranks on each of H hosts, has the collectives of full within each host; between hosts "
         "it only adds up the shards of the gradients, 2 (H - 1) / H x 2 M / G bytes in fp32.\n"
         "The peak decides which strategies are possible: grad_op keeps M bytes gathered until "
         "backward, and a shard of hybrid is H times as large as a shard of full. Section 3.2 of "
         "the FSDP paper (Zhao et al., VLDB 2023) compares full and hybrid sharding.\n" +
         formatted("So %s has the fastest step of the strategies that fit.\n",
                   answers.at("fastest").get<std::string>().c_str());
}

std::string explain_checkpoint_time(const Question& question, const nlohmann::json& answers) {
  const PlanSettings settings = settings_with(question);
  const int ranks = settings.configs.front().ranks.world;
  const int of_host = settings.machine.ranks_per_host;
  const int64_t bytes = checkpoint_bytes(plan_with(question));
  const double seconds = answers.at("seconds");
  return formatted(
      "A parameter has 4 bytes and each of its two moments has 4, so the checkpoint has 12 bytes "
      "for each parameter. Full sharding (section 3.2.1 of the FSDP paper, Zhao et al., VLDB 2023) "
      "leaves each of W ranks 1 / W of it.\n"
      "./fsdp plan prints %.4f GB in the column optimizer for shards and optimizer_state, and %d "
      "ranks have %.1f GB.\n"
      "With %d ranks on each host, %d hosts write at the same time: %d x %g GB/s = %g GB/s.\n"
      "%.1f GB / %g GB/s = %.4g s.\n",
      static_cast<double>(bytes) * 1e-9, ranks,
      static_cast<double>(bytes) * static_cast<double>(ranks) * 1e-9, of_host, ranks / of_host,
      ranks / of_host, question.amount, question.amount * ranks / of_host,
      static_cast<double>(bytes) * static_cast<double>(ranks) * 1e-9,
      question.amount * ranks / of_host, seconds);
}

}  // namespace fsdp
