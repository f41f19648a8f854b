#include <nn/models.h>
#include <plan/settings.h>
#include <plan/stack.h>
#include <quiz/explanations.h>
#include <quiz/scale.h>
#include <quiz/step_by_hand.h>
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

// Returns a calculation as text: the time that the collectives of `cost` take between `ranks` ranks
// on `link`, in the alpha-beta model (hops x latency + bytes / bandwidth):
// "2 x 7 x 10 us + 50.000 MB / 25 GB/s = 2.1400 ms".
std::string link_time(const Link& link, int64_t ranks, const PhaseCost& cost) {
  const double latency = static_cast<double>(link.latency.count()) * 1e-3;
  const std::string calls = cost.calls == 1 ? "" : std::to_string(cost.calls) + " x ";
  return calls + formatted("%lld x %g us + %.3f MB / %g GB/s = %.4f ms",
                           static_cast<long long>(ranks - 1), latency, mega(cost.received),
                           link.bytes_per_second * 1e-9, milliseconds(cost.links));
}

std::string text_of(const ModelUnits& units) {
  return formatted("The model has %lld blocks of %s elements, and a root of %s elements.\n",
                   static_cast<long long>(units.blocks), with_commas(units.block).c_str(),
                   with_commas(units.root).c_str());
}

const char* const kAlphaBeta =
    "The W ranks of a collective stand in a ring. An all-gather or a reduce-scatter is W - 1 hops, "
    "so it takes (W - 1) x latency + bytes received / bandwidth (the alpha-beta model). Let a unit "
    "have E elements, padded to a multiple of 16 W. In bf16, also for gradients, an element has 2 "
    "bytes. A rank holds 1 / W of the elements and receives the others:\n"
    "  2 E x (W - 1) / W bytes.\n";

// Returns the paragraph that estimates at how many ranks the collectives of backward take as long
// as its computing. The estimate ignores padding and uses 1 for (W - 1) / W, so the bytes that a
// rank receives do not depend on the number of ranks.
std::string ranks_without_padding(const PhaseCost& backward, const ModelUnits& units,
                                  const Machine& machine) {
  const int64_t bytes = 2 * (2 * units.blocks * units.block + units.root);
  const double transfer = static_cast<double>(bytes) / machine.between->bytes_per_second * 1e3;
  const double latency = static_cast<double>(machine.between->latency.count()) * 1e-3;
  const double left = milliseconds(backward.computing) - transfer;
  const auto calls = static_cast<double>(backward.calls);
  return formatted(
      "To find W, first take 1 for (W - 1) / W: the links receive 2 x (2 x %lld x %s + %s) bytes = "
      "%.1f MB in backward, which takes %.3f ms. If the links need as long as a rank computes, "
      "%.3f - %.3f = %.3f ms are left for the latencies, %.0f x (W - 1) x %g us. This gives W = "
      "%.1f. Then try the whole numbers around it, also above it, because (W - 1) / W is below 1. "
      "Use this factor now, and the padding of each unit for this W.\n",
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
  const ModelUnits units = units_of(settings_with(question, on_most));
  const Plan right = plan_with(question, on_most);
  const PhaseCost& backward = cost_of(right, Phase::backward);
  std::string text = kAlphaBeta + text_of(units);
  text += formatted(
      "Backward has 2 x %lld + 1 = %lld collectives. Forward reshards each block, also the last "
      "one, so each is gathered again; and its gradient is reduced. The root stays gathered from "
      "forward to backward, so it is only reduced.\n",
      static_cast<long long>(units.blocks), static_cast<long long>(backward.calls));
  text += formatted(
      "A rank computes %.2f Tflop in backward: for each of its rows x seq tokens, 4 flops for each "
      "element of the matrices (12 x d_model^2 in a block, and vocabulary x d_model in the head), "
      "and in each block 10 x seq x d_model for attention: it has two products of matrices in "
      "forward, and five in backward. Here d_model is %lld, and the vocabulary has %lld tokens. At "
      "%g Tflop/s this takes %.3f ms, on any number of ranks.\n",
      static_cast<double>(backward.flops) * 1e-12, static_cast<long long>(shape.d_model),
      static_cast<long long>(shape.vocabulary), machine.flops * 1e-12,
      milliseconds(backward.computing));
  text += ranks_without_padding(backward, units, machine);
  for (const int64_t ranks : {most, most + 1}) {
    const Plan plan = plan_with(question, {"--world", std::to_string(ranks)});
    text += formatted("W = %lld: the links need ", static_cast<long long>(ranks)) +
            link_time(*machine.between, ranks, cost_of(plan, Phase::backward)) +
            (ranks == most ? ", not longer than a rank computes: they are fast enough.\n"
                           : ", longer than a rank computes: they are too slow.\n");
  }
  return text +
         "With more ranks the latency grows. The bytes hardly change: (W - 1) / W is nearly 1 "
         "already, and the padding differs a little. With more rows a rank computes longer, so the "
         "links are fast enough for more ranks. Section 3.3 of the FSDP paper (Zhao et al., VLDB "
         "2023) shows how collectives overlap with computing.\n";
}

namespace {

// Returns a text with the times that a rank waits in forward with `fewest` rows and, if `fewest` is
// above 1, with one row less.
std::string waits_by_hand(const ModelUnits& units, double of_root, double of_block, double of_row,
                          int64_t fewest) {
  const double ends = of_root + of_block;
  std::string text = formatted(
      "With %lld rows or more, a rank waits only while the root and the first block are gathered, "
      "because it has nothing to compute then: %.4f + %.4f = %.3f ms. More rows do not shorten "
      "this.\n",
      static_cast<long long>(fewest), of_root, of_block, ends);
  if (fewest == 1) return text;
  const double late = of_block - static_cast<double>(fewest - 1) * of_row;
  const auto others = static_cast<long long>(units.blocks - 1);
  return text +
         formatted(
             "With %lld rows, it also waits before each of the %lld other blocks, for %.4f - "
             "%lld x %.5f = %.4f ms: %.3f ms in all.\n",
             static_cast<long long>(fewest - 1), others, of_block,
             static_cast<long long>(fewest - 1), of_row, late,
             ends + static_cast<double>(others) * late);
}

}  // namespace

std::string explain_fewest_rows(const Question& question, const nlohmann::json& answers) {
  const PlanSettings settings = settings_with(question, {"--rows", "1"});
  const Machine& machine = settings.machine;
  const GPT2Options shape = shape_of(settings);
  const ModelUnits units = units_of(settings);
  const int64_t fewest = answers.at("rows");
  const BlockCost block = block_cost(question);
  const double of_row = static_cast<double>(block.flops_of_row) / machine.flops * 1e3;
  const double of_block = milliseconds(block.gather);
  std::string text = kAlphaBeta + text_of(units);
  text +=
      "While one block computes its forward, the links gather the next block. Prefetch hides "
      "this if the forward takes at least as long as the all-gather.\n";
  text += "The all-gather of a block takes " +
          link_time(*machine.between, block.ranks,
                    {.calls = 1, .received = block.received, .links = block.gather}) +
          ".\n";
  text += formatted(
      "For one row, the forward of a block computes %.3f Gflop: for each of its seq tokens, 2 "
      "flops for each of the 12 x d_model^2 elements of the matrices (d_model is %lld), and 4 x "
      "seq x d_model in attention. At %g Tflop/s this takes %.5f ms.\n"
      "%.4f / %.5f = %.2f, rounded up to whole rows: %lld.\n",
      static_cast<double>(block.flops_of_row) * 1e-9, static_cast<long long>(shape.d_model),
      machine.flops * 1e-12, of_row, of_block, of_row, of_block / of_row,
      static_cast<long long>(fewest));
  const Plan right = plan_with(question, {"--rows", std::to_string(fewest)});
  const double of_root = milliseconds(cost_of(right, Phase::forward).waiting) - of_block;
  text += waits_by_hand(units, of_root, of_block, of_row, fewest);
  const double ranks = static_cast<double>(block.ranks);
  const double tokens = (ranks - 1) / ranks * machine.flops / machine.between->bytes_per_second;
  const auto seq = static_cast<double>(settings.configs.front().training.seq);
  return text +
         formatted(
             "A rule of thumb, without latency and attention: for T tokens, a block of E elements "
             "computes 2 E T flops, and receives 2 E x (W - 1) / W bytes. Both take as long if\n"
             "  2 E T / (flops/s) = 2 E x (W - 1) / W / bandwidth.\n"
             "E cancels, so\n"
             "  T = (W - 1) / W x (flops/s) / bandwidth.\n"
             "Here T = %.0f tokens, or %.1f rows, beside %.1f above: latency raises this number, "
             "and attention lowers it. ",
             tokens, tokens / seq, of_block / of_row) +
         "Prefetch in forward is section 3.3.3 of the FSDP paper (Zhao et al., VLDB 2023).\n";
}

namespace {

// Returns a line of text: the times that add up to the time of a phase, and their sum.
std::string text_of_phase(const std::string& phase, const PhaseByHand& by_hand) {
  std::string text = formatted("%s: computing %.2f ms, collectives %.2f ms", phase.c_str(),
                               by_hand.computing, by_hand.links);
  if (by_hand.sums > 0) text += formatted(", sums %.2f ms", by_hand.sums);
  text += formatted(", the ends %.2f ms", by_hand.ends);
  if (by_hand.loss > 0) text += formatted(", the loss %.2f ms", by_hand.loss);
  return text + formatted(". Together %.2f ms.\n", by_hand.total());
}

// [bytes] Returns the part of a rank's peak that the explanation adds up: the shards, the moments,
// and the reduced gradients or, with grad_op, the gathered units.
double named_peak(const ModelUnits& units, const std::string& strategy, int world, int of_host) {
  const auto all = static_cast<double>(units.all());
  const double ranks = strategy == "hybrid" ? of_host : world;
  return 14 * all / ranks + (strategy == "grad_op" ? 2 * all : 4 * all / ranks);
}

std::string text_of(const Contender& one, const PlanSettings& settings, const ModelUnits& units) {
  const StepByHand by_hand = step_by_hand(settings, one.name);
  const double named = named_peak(units, one.name, settings.configs.front().ranks.world,
                                  settings.machine.ranks_per_host);
  return one.name + ":\n" + text_of_phase("- forward", by_hand.forward) +
         text_of_phase("- backward", by_hand.backward) +
         formatted(
             "- By this sum a step takes %.2f ms; with every single wait it takes %.2f ms. (A "
             "difference comes from the blocks at the ends of a phase: for them the other one of "
             "links and computing can be the longer.)\n"
             "- The terms of the peak give %.2f GB. With gathered units, gradients that are not "
             "yet reduced and activations it is %.2f GB, which %s.\n",
             by_hand.total(), one.milliseconds, named * 1e-9,
             static_cast<double>(one.plan.peak.bytes.total) * 1e-9,
             one.fits ? "fits" : "does not fit");
}

// Returns a text: which collectives each sharding strategy has, and how many bytes a rank receives
// in them.
std::string collectives_of_strategies(const ModelUnits& units) {
  const auto blocks = static_cast<long long>(units.blocks), all = blocks + 1;
  return "Every rank has an --intra and an --inter link of its own. The collectives of full and of "
         "grad_op have ranks on both hosts, so they run over --inter.\n" +
         formatted(
             "full: forward gathers all %lld units:\n"
             "  %lld x (W - 1) x latency, and 2 N x (W - 1) / W bytes.\n"
             "Backward gathers the %lld blocks again, and reduces all units:\n"
             "  %lld x (W - 1) x latency, and 2 (2 N - R) x (W - 1) / W bytes.\n",
             all, all, blocks, all + blocks) +
         formatted(
             "grad_op: units stay gathered from forward to backward. So forward is that of full, "
             "and backward only reduces:\n"
             "  %lld x (W - 1) x latency, and 2 N x (W - 1) / W bytes.\n",
             all) +
         formatted(
             "hybrid: forward and backward are those of full, but among the G ranks of a host: "
             "over --intra, and with G in place of W. In addition, for each of the %lld units, "
             "backward adds up the gradients of the H ranks that hold the same shard, over "
             "--inter. These are fp32, N / G elements in all. Each sum is a reduce-scatter and an "
             "all-gather:\n"
             "  %lld x 2 x (H - 1) x latency, and in all 2 x (H - 1) / H x 4 N / G bytes.\n",
             all, all);
}

// Returns a text: how many flops a rank computes in forward and in backward, and how long they
// take.
std::string computing_of(const PlanSettings& settings) {
  const GPT2Options shape = shape_of(settings);
  const TrainConfig& config = settings.configs.front();
  const int64_t tokens = config.training.batch / config.ranks.world * config.training.seq;
  // The argument "full" is a sharding strategy; any other strategy gives the same computing times.
  const StepByHand step = step_by_hand(settings, "full");
  return formatted(
             "A rank has rows x seq = %lld tokens. In forward, each token takes 2 flops for each "
             "element of the matrices (12 x d_model^2 in a block, and vocabulary x d_model in the "
             "head), and in each block 4 x seq x d_model for attention. In backward it takes 4 in "
             "place of 2, and 10 in place of 4; and each block, which is checkpointed, computes "
             "its forward again. Here d_model is %lld, and the vocabulary has %lld tokens.\n",
             static_cast<long long>(tokens), static_cast<long long>(shape.d_model),
             static_cast<long long>(shape.vocabulary)) +
         formatted(
             "At %g Tflop/s a block computes for %.4f ms in forward and %.4f ms in backward, and "
             "the head for %.4f and %.4f ms.\n",
             settings.machine.flops * 1e-12, step.forward.of.block, step.backward.of.block,
             step.forward.of.head, step.backward.of.head);
}

// Paragraphs of an explanation. kTimeOfPhase: how a student adds up the time of a phase. kPeaks:
// how a student adds up the bytes of each strategy's peak.
const char* const kTimeOfPhase =
    "A step is forward and then backward. The links handle one collective at a time, in the order "
    "of issue. While a block computes, the next one is gathered or the one before is reduced. So a "
    "phase takes the longer of its computing and its collectives, and in addition:\n"
    "- the sums of hybrid: a rank continues only when a sum has ended, so nothing overlaps with "
    "them;\n"
    "- the ends of the phase, where either the links or the rank has nothing to do;\n"
    "  forward, if the collectives are longer: what the last block and the head compute;\n"
    "  forward, if computing is longer: the all-gathers of the root and of the first block;\n"
    "  backward, if the collectives are longer: what the head computes, since the all-gather of "
    "the last block begins only after it (with grad_op also the last block, since the first "
    "reduction comes after it);\n"
    "  backward, if computing is longer: the all-gather of the last block (not with grad_op), and "
    "the reductions of the first block and of the root;\n"
    "- at the end of backward, the average of the loss over all ranks: 2 x (W - 1) x latency over "
    "--inter.\n";
const char* const kPeaks =
    "The peak decides which strategies are possible. A rank always holds its shards, fp32 and bf16 "
    "(6 N / W bytes: AdamW updates the fp32 shard, and the all-gathers send the bf16 one), and "
    "both moments (8 N / W). full reaches its peak late in backward, when nearly all reduced "
    "gradients are there; they were sent in bf16 and are kept in fp32 (4 N / W). grad_op reaches it at the beginning of "
    "backward, when all units are gathered (2 N) and hardly any gradient is reduced. hybrid is as "
    "full, with G in place of W. Section 3.2 of the FSDP paper (Zhao et al., VLDB 2023) compares "
    "full and hybrid sharding.\n";

}  // namespace

std::string explain_fastest_strategy(const Question& question, const nlohmann::json& answers) {
  const PlanSettings settings = settings_with(question);
  const ModelUnits units = units_of(settings);
  const int world = settings.configs.front().ranks.world, of_host = settings.machine.ranks_per_host;
  std::string text = formatted(
      "There are W = %d ranks, G = %d on each of H = %d hosts. The model has %lld blocks and the "
      "root: N = %.3f million elements in all, of which the root has R = %.3f million. In bf16 an "
      "element has 2 bytes.\n",
      world, of_host, world / of_host, static_cast<long long>(units.blocks),
      static_cast<double>(units.all()) * 1e-6, static_cast<double>(units.root) * 1e-6);
  text += computing_of(settings) + collectives_of_strategies(units) + kTimeOfPhase + kPeaks;
  for (const Contender& one : contenders(question))
    text += text_of(one, settings, units);
  return text + formatted("So %s has the fastest step of the strategies that fit.\n",
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
             "The model has %.3f billion parameters. Each has 4 bytes, and so has each of its two "
             "moments: 12 bytes, together %.1f GB. With full sharding (section 3.2.1 of the FSDP "
             "paper, Zhao et al., VLDB 2023) each of %d ranks has 1 / %d of it, %.4f GB, and no "
             "byte is written twice.\n",
             all / 12e9, all * 1e-9, ranks, ranks, static_cast<double>(bytes) * 1e-9) +
         formatted(
             "With %d ranks on each host, %d hosts write at the same time: %d x %g GB/s = %g "
             "GB/s.\n"
             "%.1f GB / %g GB/s = %.4g s.\n",
             of_host, ranks / of_host, ranks / of_host, question.amount,
             question.amount * ranks / of_host, all * 1e-9, question.amount * ranks / of_host,
             seconds);
}

}  // namespace fsdp
