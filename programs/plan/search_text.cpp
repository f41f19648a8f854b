#include <base/text.h>
#include <plan/memory_bar.h>
#include <plan/search_text.h>
#include <plan/text.h>
#include <plan/train_command.h>

#include <algorithm>
#include <cstdio>
#include <limits>

namespace fsdp {
namespace {

constexpr size_t kTooLarge = 5;

int64_t peak_of(const Candidate& candidate) {
  return candidate.plan.peak.bytes.total;
}

std::vector<Candidate> fitting(const std::vector<Candidate>& found, int64_t memory) {
  std::vector<Candidate> kept;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const Candidate& candidate : found) {
    if (!candidate.plan.fits(memory)) break;
    if (peak_of(candidate) >= least) continue;
    least = peak_of(candidate);
    kept.push_back(candidate);
  }
  return kept;
}

bool only_rows_differ(const Candidate& one, const Candidate& other) {
  const TrainConfig &a = one.config, &b = other.config;
  return one.offloads() == other.offloads() && a.precision.policy == b.precision.policy &&
         a.shards() == b.shards() &&
         a.sharding.reshard_after_forward == b.sharding.reshard_after_forward &&
         a.sharding.limit == b.sharding.limit &&
         a.memory.activation_checkpoint_every == b.memory.activation_checkpoint_every &&
         a.optimizer.step_in_backward == b.optimizer.step_in_backward;
}

std::vector<Candidate> smallest(const std::vector<Candidate>& found) {
  std::vector<Candidate> kept;
  for (const Candidate& candidate : found) {
    const auto same = [&](Candidate before) {
      before.config.sharding.limit = candidate.config.sharding.limit;
      return before.rows() == candidate.rows() && only_rows_differ(before, candidate);
    };
    if (std::ranges::any_of(kept, same)) continue;
    kept.push_back(candidate);
    if (kept.size() == kTooLarge) break;
  }
  return kept;
}

// A column of the table that shows the candidates (the plans that the search found).
struct Column {
  std::string title;
  std::function<std::string(const Candidate& candidate)> cell;
};

std::string number(const char* format, double value) {
  char text[40];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string dtype_text(const TrainConfig& config) {
  switch (config.precision.policy.param_dtype) {
    case at::kBFloat16:
      return "bf16";
    case at::kHalf:
      return "fp16";
    default:
      return "fp32";
  }
}

std::string recomputed_text(const TrainConfig& config) {
  const int every = config.memory.activation_checkpoint_every;
  return every == 0 ? "none" : every == 1 ? "all" : "every:" + std::to_string(every);
}

std::string limit_text(const TrainConfig& config) {
  const int limit = config.sharding.limit_in_forward();
  return limit == kAllUnits ? "all" : std::to_string(limit);
}

class Columns {
 public:
  // Chooses the columns of the table of candidates. `found`: all candidates, also those that are
  // not in the table.
  Columns(const PlanSettings& settings, const std::vector<Candidate>& found)
      : settings_(settings), found_(found) {
    const int64_t memory = *settings.memory;
    const bool timed = found.front().plan.time.has_value(), fits = found.front().plan.fits(memory);
    if (timed) add_speed();
    add_bytes("peak", [](const Candidate& one) { return peak_of(one); });
    if (!fits) add_bytes("over", [memory](const Candidate& one) { return peak_of(one) - memory; });
    if (!timed) add_work();
    add("batch", [](const Candidate& one) { return std::to_string(one.config.training.batch); });
    add("rows", [](const Candidate& one) { return std::to_string(one.rows()); });
    if (!timed && fits && settings.searched.rows)
      add("max rows", [this](const Candidate& one) { return std::to_string(most_rows(one)); });
    add_settings();
  }

  const std::vector<Column>& all() const { return columns_; }

 private:
  void add(const std::string& title, std::function<std::string(const Candidate&)> cell) {
    columns_.push_back({title, std::move(cell)});
  }
  void add_speed() {
    add("tokens/s", [](const Candidate& one) {
      return one.plan.time ? number("%.0f", one.tokens_per_second()) : "-";
    });
    add("step s", [](const Candidate& one) {
      return one.plan.time ? number("%.4g", static_cast<double>(one.plan.time->total()) * 1e-9)
                           : "-";
    });
  }
  void add_bytes(const std::string& title, const std::function<int64_t(const Candidate&)>& bytes) {
    const bool giga = peak_of(found_.front()) >= 1'000'000'000;
    add(title + (giga ? " GB" : " MB"), [bytes, giga](const Candidate& one) {
      return number("%.3f", static_cast<double>(bytes(one)) / (giga ? 1e9 : 1e6));
    });
  }
  void add_work() {
    add("Gflop/token",
        [](const Candidate& one) { return number("%.4g", one.flops_per_token() * 1e-9); });
  }
  void add_settings() {
    const bool shards = settings_.configs.front().ranks.mode == Mode::fsdp;
    add("dtype", [](const Candidate& one) { return dtype_text(one.config); });
    if (shards)
      add("strategy", [](const Candidate& one) { return one.config.sharding_strategy(); });
    add("recomputed", [](const Candidate& one) { return recomputed_text(one.config); });
    if (shards) {
      add("limit", [](const Candidate& one) { return limit_text(one.config); });
      add("update", [](const Candidate& one) {
        return one.config.optimizer.step_in_backward ? "backward" : "end";
      });
    }
    if (settings_.searched.offload)
      add("offload", [](const Candidate& one) { return one.offloads() ? "yes" : "no"; });
  }
  // Returns the largest number of rows in a microbatch with which a candidate fits, among the
  // candidates that differ from `one` only in the rows.
  int64_t most_rows(const Candidate& one) const {
    int64_t most = one.rows();
    for (const Candidate& other : found_)
      if (other.plan.fits(*settings_.memory) && only_rows_differ(one, other))
        most = std::max(most, other.rows());
    return most;
  }

  const PlanSettings& settings_;
  const std::vector<Candidate>& found_;
  std::vector<Column> columns_;
};

std::string table_of(const std::vector<Candidate>& lines, const std::vector<Column>& columns) {
  std::vector<std::string> text(lines.size() + 1);
  for (const Column& column : columns) {
    std::vector<std::string> cells{column.title};
    for (const Candidate& line : lines)
      cells.push_back(column.cell(line));
    const size_t width = std::ranges::max_element(cells, {}, &std::string::size)->size();
    for (size_t i = 0; i < cells.size(); ++i)
      text[i] += "  " + std::string(width - cells[i].size(), ' ') + cells[i];
  }
  std::string table;
  for (const std::string& line : text)
    table += line + '\n';
  return table;
}

// Returns the names of the options for which the search tried several values.
std::string tried_text(const PlanSettings& settings) {
  const Searched& searched = settings.searched;
  const bool shards = settings.configs.front().ranks.mode == Mode::fsdp;
  std::string names;
  const auto add = [&](bool tried, const char* name) {
    if (tried) names += (names.empty() ? "" : ", ") + std::string(name);
  };
  add(searched.strategy && shards, "--strategy");
  add(searched.limit && shards, "--limit");
  add(searched.recomputation, "--checkpoint-activations");
  add(searched.dtype, "--param-dtype");
  add(searched.step_in_backward && shards, "--step-in-backward");
  add(searched.offload, "--offload");
  add(searched.rows, searched.batch ? "--batch" : "--microbatches");
  return names;
}

std::string counts_text(const PlanSettings& settings, const std::vector<Candidate>& found) {
  const auto fit = std::ranges::count_if(
      found, [&](const Candidate& one) { return one.plan.fits(*settings.memory); });
  const std::string all = std::to_string(found.size()) + " plans";
  if (fit == 0) return all + ", and none fits; the smallest ones are:\n";
  if (found.front().plan.time)
    return all + ", " + std::to_string(fit) +
           " fit; the fastest first, then those with fewer bytes (1 % slower counts as equal):\n";
  return all + ", " + std::to_string(fit) +
         " fit; times are not known, so the order is that of bytes, and each line works more to "
         "save some; for times, give --machine, or --flops, --intra and --inter\n";
}

std::string advice(const PlanSettings& settings, const Ways& ways) {
  std::string text;
  if (ways.ranks > 0)
    text += "plans fit on " + std::to_string(ways.ranks) + " ranks (--world " +
            std::to_string(ways.ranks) + ")\n";
  if (ways.seq > 0)
    text += "plans fit with rows of " + std::to_string(ways.seq) + " tokens (--seq " +
            std::to_string(ways.seq) + ")\n";
  if (settings.machine.backend == "nccl")
    text += "not tried: --offload, which train has only for ranks on the CPU (--backend shm)\n";
  return text;
}

}  // namespace

std::vector<Candidate> worth_a_choice(const std::vector<Candidate>& found, int64_t memory) {
  const std::vector<Candidate> fit = fitting(found, memory);
  return fit.empty() ? smallest(found) : fit;
}

std::string text_of_search(const PlanSettings& settings, const std::vector<Candidate>& found,
                           const Ways& ways) {
  const Candidate& first = found.front();
  const std::string bar = memory_bar(first.plan.peak.bytes, settings.memory);
  std::string text =
      first_lines(first.plan, first.config, settings) +
      wrap("tried: " + tried_text(settings) + '\n', 100, 2) +
      wrap(counts_text(settings, found), 100, 2) +
      table_of(worth_a_choice(found, *settings.memory), Columns(settings, found).all()) +
      kNotCounted;
  if (!first.plan.fits(*settings.memory))
    return text + "the smallest:\n" + bar + advice(settings, ways);
  return text + (first.plan.time ? "the fastest that fits:\n" : "the first:\n") + bar +
         train_command(settings, first.config, first.options) +
         notes_on_command(settings, first.config);
}

}  // namespace fsdp
