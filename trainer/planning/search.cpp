#include <planning/search.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace fsdp {
namespace {

constexpr int64_t kMostRows = 64;
// A plan counts as faster than another one if it computes more than this many times as many tokens
// per second.
constexpr double kNoticed = 1.01;

// One value that the search tries for a setting, and the option of ./fsdp train that sets this
// value. If the search does not try a setting, the setting has one value, and the option is empty.
template <typename Value>
struct Choice {
  std::string option;
  Value value;
};

template <typename Value>
std::vector<Choice<Value>> choices(bool tried, Value kept, std::vector<Choice<Value>> all) {
  return tried ? std::move(all) : std::vector<Choice<Value>>{{"", kept}};
}

struct Sharding {
  int shard_size;  // number of ranks of a replica; 0: all ranks
  bool reshards;
};

std::vector<Choice<Sharding>> strategies(const TrainConfig& base, bool tried, int of_host) {
  const int world = base.ranks.world;
  std::vector<Choice<Sharding>> all{{"--strategy full", {0, true}},
                                    {"--strategy grad_op", {0, false}}};
  if (world > 1) all.push_back({"--strategy no", {1, true}});
  if (of_host > 1 && of_host < world && world % of_host == 0)
    all.push_back({"--strategy hybrid --shard-size " + std::to_string(of_host), {of_host, true}});
  const Sharding kept{base.sharding.shard_size, base.sharding.reshard_after_forward};
  return choices(tried && base.ranks.mode == Mode::fsdp, kept, all);
}

// The settings on which the trace of the model depends, and the options of ./fsdp train that set
// them. All plans with these settings share one trace.
struct Traced {
  std::string options;
  TrainConfig config;
};

// Gives each microbatch `rows` rows. If `batch_grows` is true, sets the size of the global batch
// for this, otherwise the number of microbatches. Returns the option of ./fsdp train that sets it;
// nothing if the global batch can't be cut into such microbatches.
std::optional<std::string> set_rows(TrainConfig& config, int64_t rows, bool batch_grows) {
  TrainingConfig& training = config.training;
  if (batch_grows) {
    training.batch = rows * training.microbatches;
    return "--batch " + std::to_string(training.batch);
  }
  if (training.batch % (rows * config.ranks.world) != 0) return std::nullopt;
  training.microbatches = static_cast<int>(training.batch / rows);
  return "--microbatches " + std::to_string(training.microbatches);
}

bool several_microbatches(const TrainConfig& config) {
  return config.batch_partition().accumulation_steps > 1;
}

// Returns whether ./fsdp train refuses the settings `config`.
bool refused(const TrainConfig& config) {
  const bool last = config.training.reduce_gradients == ReduceGradients::last;
  const bool narrow = config.precision.policy != MixedPrecisionPolicy{};
  if (several_microbatches(config) && last && narrow) return true;
  return config.optimizer.step_in_backward &&
         (several_microbatches(config) || config.optimizer.clip || config.precision.loss_scaler);
}

std::string joined(const std::vector<std::string>& options) {
  std::string text;
  for (const std::string& option : options)
    if (!option.empty()) text += (text.empty() ? "" : " ") + option;
  return text;
}

class Search {
 public:
  Search(const TrainConfig& base, const Searched& searched, const Machine& machine,
         const SearchOf& of)
      : base_(base), searched_(searched), machine_(machine), of_(of) {}

  std::vector<Candidate> run() {
    using Dtype = at::ScalarType;
    const MixedPrecisionPolicy kept = base_.precision.policy;
    const auto dtypes = choices<MixedPrecisionPolicy>(
        searched_.dtype, kept,
        {{"--param-dtype fp32", {}}, {"--param-dtype bf16", {Dtype::BFloat16, Dtype::BFloat16}}});
    const auto recomputed =
        choices<int>(searched_.recomputation, base_.memory.activation_checkpoint_every,
                     {{"--checkpoint-activations none", 0},
                      {"--checkpoint-activations every:2", 2},
                      {"--checkpoint-activations all", 1}});
    for (const auto& [dtype_option, policy] : dtypes) {
      layouts_.clear();
      for (const auto& [recomputed_option, every] : recomputed) {
        Traced traced{joined({dtype_option, recomputed_option}), base_};
        traced.config.precision.policy = policy;
        traced.config.memory.activation_checkpoint_every = every;
        plan_rows(traced);
      }
    }
    return sorted();
  }

 private:
  void plan_rows(const Traced& without_rows) {
    if (!searched_.rows) return plan_one_trace(without_rows);
    double before = 0;
    for (int64_t rows = 1; rows <= kMostRows; rows *= 2) {
      Traced traced = without_rows;
      const auto option = set_rows(traced.config, rows, searched_.batch);
      if (!option) continue;
      traced.options = joined({*option, traced.options});
      const size_t begin = found_.size();
      plan_one_trace(traced);
      double best = 0;
      bool fits = false;
      for (size_t i = begin; i < found_.size(); ++i) {
        best = std::max(best, found_[i].tokens_per_second());
        fits = fits || found_[i].plan.fits(of_.memory);
      }
      const bool faster = best == 0 || best > kNoticed * before;
      if (!faster) found_.resize(begin);
      if (!fits || !faster) return;
      before = best;
    }
  }

  // Makes the plans for the settings `traced` with each strategy, limit, time of the update and
  // place of the moments to try. All these plans share one trace of the model.
  void plan_one_trace(const Traced& traced) {
    std::optional<ModelTraces> traces;
    const bool shards = base_.ranks.mode == Mode::fsdp;
    const auto limits = choices<int>(searched_.limit && shards, base_.sharding.limit,
                                     {{"--limit 2", 2}, {"--limit 1", 1}, {"--limit 4", 4}});
    const auto updates =
        choices<bool>(searched_.step_in_backward && shards, base_.optimizer.step_in_backward,
                      {{"--step-in-backward off", false}, {"--step-in-backward on", true}});
    const auto folders = choices<std::string>(
        searched_.offload, base_.memory.offload_dir,
        {{"--offload none", ""}, {"--offload optimizer --offload-dir DIR", "DIR"}});
    for (const auto& [strategy, sharding] :
         strategies(base_, searched_.strategy, machine_.ranks_per_host)) {
      for (const auto& [limit_option, limit] : limits) {
        for (const auto& [update_option, in_backward] : updates) {
          for (const auto& [offload_option, folder] : folders) {
            Candidate candidate{
                joined({traced.options, strategy, limit_option, update_option, offload_option}),
                traced.config,
                {}};
            candidate.config.sharding.shard_size = sharding.shard_size;
            candidate.config.sharding.reshard_after_forward = sharding.reshards;
            candidate.config.sharding.limit = limit;
            candidate.config.optimizer.step_in_backward = in_backward;
            candidate.config.memory.offload_dir = folder;
            plan(std::move(candidate), traces);
          }
        }
      }
    }
  }

  void plan(Candidate candidate, std::optional<ModelTraces>& traces) {
    if (refused(candidate.config)) return;
    const int shard_size = candidate.config.sharding.shard_size;
    if (!layouts_.contains(shard_size)) layouts_[shard_size] = of_.layout(candidate.config);
    const ShardLayout& layout = layouts_[shard_size];
    if (!traces) traces = of_.traces(candidate.config, layout);
    candidate.plan = make_plan(candidate.config, layout, *traces, machine_);
    if (candidate.offloads()) candidate.plan.time.reset();
    found_.push_back(std::move(candidate));
    if (of_.progress) of_.progress(found_.size());
  }

  std::vector<Candidate> sorted() {
    const auto key = [&](const Candidate& candidate) {
      const int64_t peak = candidate.plan.peak.bytes.total;
      const bool fits = candidate.plan.fits(of_.memory), timed = fits && candidate.plan.time;
      const bool by_work = fits && !timed;
      return std::tuple(!fits, by_work, timed ? -candidate.tokens_per_second() : 0,
                        by_work && candidate.offloads(), by_work ? candidate.flops_per_token() : 0,
                        by_work && !candidate.prefetches(), peak);
    };
    std::ranges::stable_sort(found_, {}, key);
    auto begin = found_.begin();
    while (begin != found_.end() && begin->plan.time && begin->plan.fits(of_.memory))
      begin = sort_equally_fast(begin);
    return std::move(found_);
  }

  // Sorts a group of plans by their peak memory: those from `begin` on that count as equally fast
  // as the plan at `begin`. Returns the end of the group.
  std::vector<Candidate>::iterator sort_equally_fast(std::vector<Candidate>::iterator begin) {
    const double fastest = begin->tokens_per_second();
    const auto end = std::find_if(begin, found_.end(), [&](const Candidate& candidate) {
      return !candidate.plan.fits(of_.memory) || kNoticed * candidate.tokens_per_second() < fastest;
    });
    std::stable_sort(begin, end, [](const Candidate& a, const Candidate& b) {
      return a.plan.peak.bytes.total < b.plan.peak.bytes.total;
    });
    return end;
  }

  const TrainConfig& base_;
  const Searched& searched_;
  const Machine& machine_;
  const SearchOf& of_;
  // shard_size, the number of ranks of a replica -> the layout, with the dtype that is being tried.
  std::map<int, ShardLayout> layouts_;
  std::vector<Candidate> found_;
};

}  // namespace

int64_t Candidate::rows() const {
  return config.training.batch / config.training.microbatches;
}

int64_t Candidate::tokens() const {
  return config.training.batch * config.training.seq;
}

double Candidate::flops_per_token() const {
  const auto of_rank = static_cast<double>(tokens()) / config.ranks.world;
  return static_cast<double>(plan.flops) / of_rank;
}

double Candidate::tokens_per_second() const {
  if (!plan.time) return 0;
  return static_cast<double>(tokens()) / (static_cast<double>(plan.time->total()) * 1e-9);
}

std::vector<Candidate> search(const TrainConfig& base, const Searched& searched,
                              const Machine& machine, const SearchOf& of) {
  return Search(base, searched, machine, of).run();
}

}  // namespace fsdp
