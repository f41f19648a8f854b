#include <comm/call_observer.h>
#include <receipt/receipt.h>
#include <receipt/recomputation.h>

#include <cstdlib>
#include <random>

#include "trained.h"

namespace fsdp {
namespace {

constexpr int64_t kSteps = 3;
constexpr int kMicrobatches = 8;

// Where a bit flips: in a shard before the step, in a reduced gradient, in a moment, in what a rank
// receives in an all-gather, in a gradient of a microbatch, or in the logits, of which the loss is
// computed.
enum class Place { shard, reduced, moment, message, part, logits };

// Describes a bit that flips once in a run, as in a hardware fault: where, on which rank and when.
// A call of a Flip flips the bit in the tensor that is passed.
struct Flip {
  Place place;
  int rank;
  int64_t step;
  // The index, from 0 on, of the microbatch among those that the rank computes in the step.
  int turn;
  // `parameter` modulo the number of parameters, and `element` modulo the number of elements,
  // select the element whose bit flips.
  int64_t parameter, element;
  int bit;
  // Path of a file into which the rank of the flip writes the names of the parameter and its unit.
  std::string note;

  void operator()(const at::Tensor& tensor, int64_t numel) const {
    const at::NoGradGuard no_grad;
    tensor.detach().view({-1}).view(at::kInt)[element % numel].bitwise_xor_(int64_t{1} << bit);
  }
  void operator()(const at::Tensor& tensor) const { (*this)(tensor, tensor.numel()); }
};

// Flips the bit in the first all-gather of `unit` that this rank receives while the object lives.
class WrongMessage final : public CallObserver {
 public:
  // `numel`: number of elements of the parameters of `unit` together, without padding.
  WrongMessage(const Flip& flip, std::string unit, int64_t numel)
      : flip_(flip), unit_(std::move(unit)), numel_(numel) {}
  void issued(const Call& call, const at::Tensor& output) override {
    if (!done_ && is_ours(call)) gathered_ = output;
  }
  void waits(const Call&) override {}
  void waited(const Call& call, Moved) override {
    if (!gathered_.defined() || !is_ours(call)) return;
    flip_(gathered_, numel_);
    gathered_.reset();
    done_ = true;
  }

 private:
  bool is_ours(const Call& call) const {
    return call.operation == Operation::all_gather && call.unit == unit_;
  }
  const Flip& flip_;
  std::string unit_;
  int64_t numel_;
  bool done_{};
  at::Tensor gathered_;
};

// A strategy that trains as `strategy` does, but flips the bit on the rank of the flip.
class Flipping final : public Strategy {
 public:
  Flipping(std::unique_ptr<Strategy> strategy, const Flip* flip)
      : strategy_(std::move(strategy)), flip_(flip) {}

  at::Tensor forward_backward(int64_t step) override {
    if (flip_ == nullptr || step != flip_->step) return strategy_->forward_backward(step);
    const Owned parameter = choose_parameter();
    if (flip_->place == Place::shard) (*flip_)(parameter.value);
    if (flip_->place == Place::moment)
      for (const StateRange& range : strategy_->state().ranges)
        if (range.parameter == parameter.parameter) (*flip_)(range.exp_avg);
    std::optional<WrongMessage> message;
    if (flip_->place == Place::message) message.emplace(*flip_, unit_, numel_of_unit());
    const at::Tensor losses = strategy_->forward_backward(step);
    if (flip_->place == Place::reduced)
      for (const Owned& owned : strategy_->owned())
        if (owned.parameter == parameter.parameter) (*flip_)(owned.gradient);
    return losses;
  }
  at::Tensor evaluate(const MicrobatchValue& value) override { return strategy_->evaluate(value); }
  double clip_grad_norm(double most, double type) override {
    return strategy_->clip_grad_norm(most, type);
  }
  void step() override { strategy_->step(); }
  void skip_step() override { strategy_->skip_step(); }
  void set_loss_scale(int64_t scale) override { strategy_->set_loss_scale(scale); }
  void full_parameters(const ParameterVisitor& visit) override {
    strategy_->full_parameters(visit);
  }
  std::vector<Owned> owned() const override { return strategy_->owned(); }
  ModelState state() override { return strategy_->state(); }
  const ShardLayout& layout() const override { return strategy_->layout(); }

 private:
  // Chooses a parameter of which this rank holds a part. Writes the parameter's name and its unit
  // into the file flip_->note.
  Owned choose_parameter() {
    const auto all = strategy_->owned();
    const Owned chosen = all[static_cast<size_t>(flip_->parameter) % all.size()];
    for (const auto& parameter : layout().parameters)
      if (parameter.name == chosen.parameter) unit_ = layout().units[parameter.unit].name;
    if (flip_->place != Place::part && flip_->place != Place::logits)
      std::ofstream(flip_->note) << chosen.parameter << ' ' << unit_;
    return chosen;
  }
  int64_t numel_of_unit() const {
    int64_t numel = 0;
    for (const auto& parameter : layout().parameters)
      if (layout().units[parameter.unit].name == unit_) numel += parameter.numel;
    return numel;
  }

  std::unique_ptr<Strategy> strategy_;
  const Flip* flip_;  // null except on the rank on which the bit flips
  std::string unit_;
};

std::optional<Flip> flip_of_run;  // the flip of the current run, set before its ranks are forked

std::string unit_of(const std::string& parameter) {
  return parameter.starts_with("h.") ? parameter.substr(0, parameter.find('.', 2)) : "root";
}

// Registers a hook that flips a bit of the gradient that one microbatch gives to one parameter.
void flip_in_backward(Module& model, const Flip& flip, int microbatches_of_rank) {
  const auto parameters = distinct_parameters(model);
  const auto& [name, tensor] = parameters[static_cast<size_t>(flip.parameter) % parameters.size()];
  const int64_t call = flip.step * microbatches_of_rank + flip.turn;
  const auto calls = std::make_shared<int64_t>(0);
  tensor.register_hook([name = name, calls, call, &flip](const at::Tensor& gradient) {
    if ((*calls)++ != call) return gradient;
    std::ofstream(flip.note) << name << ' ' << unit_of(name);
    const at::Tensor changed = gradient.contiguous().clone();
    flip(changed);
    return changed;
  });
}

// Registers a hook that flips a bit of the logits of one microbatch.
void flip_logits(Module& model, const Flip& flip, int microbatches_of_rank) {
  const int64_t call = flip.step * microbatches_of_rank + flip.turn;
  const auto calls = std::make_shared<int64_t>(0);
  model.register_forward_hook([calls, call, &flip](Module&, const at::Tensor& logits) {
    if ((*calls)++ == call) {
      std::ofstream(flip.note) << "logits root";
      flip(logits);
    }
    return at::Tensor();
  });
}

std::unique_ptr<Strategy> make_flipping(const TrainConfig& config, Workload workload,
                                        std::shared_ptr<Communicator> comm) {
  const bool here = flip_of_run && flip_of_run->rank == comm->rank();
  if (here && (flip_of_run->place == Place::part || flip_of_run->place == Place::logits)) {
    workload.build = [build = workload.build, own = kMicrobatches / config.ranks.world] {
      auto model = build();
      const auto flip = flip_of_run->place == Place::part ? flip_in_backward : flip_logits;
      flip(*model, *flip_of_run, own);
      return model;
    };
  }
  return std::make_unique<Flipping>(make_fsdp_strategy(config, std::move(workload), comm),
                                    here ? &*flip_of_run : nullptr);
}

TrainConfig config_of_run(const Arranged& how) {
  TrainConfig config = config_of(how, kMicrobatches, kSteps);
  // Allows infinite losses and norms, because a flipped bit of an exponent can make a number
  // infinite.
  config.training.allow_nan = true;
  return config;
}

Receipt receipt_of(TrainConfig config, const TemporaryFolder& folder) {
  config.reports.receipt = folder.path() + "/receipt";
  config.reports.receipt_sample = 1;
  trained(config, folder,
          {make_flipping, shard_layout, checkpoint_blocks, construct_on_meta, make_ddp_reduction});
  return read_receipt(config.reports.receipt);
}

struct RandomRun {
  TrainConfig config;
  Flip flip;
};

RandomRun draw_run(std::mt19937_64& random, const std::string& note) {
  const auto below = [&](int64_t end) { return static_cast<int64_t>(random() % end); };
  const int world = 2 << below(3);
  const int shards = below(3) == 0 ? world / 2 : 0;
  TrainConfig config = config_of_run({"fsdp", world, shards > 1 ? shards : 0});
  config.sharding.reshard_after_forward = below(4) > 0;
  config.sharding.limit = 1 + static_cast<int>(below(3));
  const auto place = static_cast<Place>(below(6));
  // With recomputation, the hook that flips a gradient would be called twice.
  if (place != Place::part) config.memory.activation_checkpoint_every = below(4) == 0 ? 1 : 0;
  return {config,
          {.place = place,
           .rank = static_cast<int>(below(config.shards())),
           .step = below(kSteps),
           .turn = static_cast<int>(below(kMicrobatches / world)),
           .parameter = below(1 << 20),
           .element = below(1 << 30),
           .bit = static_cast<int>(below(31)),
           .note = note}};
}

// Returns the texts with which the first wrong event that the audit names may begin. The flipped
// bit may not change any output of its unit, for example if it is in a row of a tied embedding.
// Then the loss or the next value of the parameter is the first wrong event.
std::vector<std::string> places_of(const RandomRun& run, const std::string& parameter,
                                   const std::string& unit) {
  const std::string step = "step " + std::to_string(run.flip.step + 1) + ", ";
  const std::string in_unit = "unit " + unit + ", ";
  const auto in_microbatch = [&](int turn) {
    return step + "microbatch " +
           std::to_string(run.config.batch_partition().microbatch(run.flip.rank, turn)) + ", ";
  };
  switch (run.flip.place) {
    // A low bit can be rounded away in one microbatch, and change the result of the next one.
    case Place::shard: {
      std::vector<std::string> places{step + in_unit};
      for (int microbatch = 0; microbatch < kMicrobatches; ++microbatch)
        for (const std::string& what : {in_unit, std::string("loss")})
          places.push_back(step + "microbatch " + std::to_string(microbatch) + ", " + what);
      return places;
    }
    case Place::message:
      return {in_microbatch(0) + in_unit, in_microbatch(0) + "loss"};
    case Place::part:
      return {in_microbatch(run.flip.turn) + in_unit + "gradient of the microbatch: " + parameter};
    // The wrong logits can round to the right loss. Then the first wrong event is a gradient.
    case Place::logits: {
      const std::string microbatch = in_microbatch(run.flip.turn);
      std::vector<std::string> places{microbatch + "loss"};
      for (const char* of : {"root", "h.0", "h.1", "h.2"})
        places.push_back(microbatch + "unit " + of + ", gradient of the microbatch: ");
      return places;
    }
    case Place::reduced:
      return {step + in_unit + "reduced gradient: " + parameter};
    // The wrong moment can round to the right parameter in an update. Then the first wrong event is
    // a later update, or the first moment after the last step.
    case Place::moment: {
      std::vector<std::string> places{"step " + std::to_string(kSteps) + ", " + in_unit +
                                      "first moment: " + parameter};
      for (int64_t later = run.flip.step + 1; later <= kSteps; ++later)
        places.push_back("step " + std::to_string(later) + ", " + in_unit +
                         "parameter after the update: " + parameter);
      return places;
    }
  }
  return {};
}

TEST(FlippedBit, an_audit_in_one_process_names_the_first_value_that_a_flipped_bit_made_wrong) {
  const TemporaryFolder folder;
  TrainConfig single = config_of_run({"single", 8});
  single.reports.hashes = folder.path() + "/hashes";
  trained(single, folder);
  const RunHashes made = read_hashes(single.reports.hashes);
  // The environment variable FSDP_FLIPPED_BITS sets the number of runs, which is 10 by default.
  const char* asked = std::getenv("FSDP_FLIPPED_BITS");
  const int64_t runs = asked == nullptr ? 10 : std::strtoll(asked, nullptr, 10);
  std::mt19937_64 random(7);
  int vanished = 0;
  for (int64_t i = 0; i < runs; ++i) {
    const RandomRun run = draw_run(random, folder.path() + "/note");
    flip_of_run = run.flip;
    const Receipt receipt = receipt_of(run.config, folder);
    flip_of_run.reset();
    std::string parameter, unit;
    std::ifstream(run.flip.note) >> parameter >> unit;
    const std::string wrong = compare_with(receipt, {0, kSteps, std::nullopt}, made).wrong;
    // If the audit names no wrong event, rounding has removed all effects of the flip: all events
    // are equal, also the final parameters and moments.
    if (wrong.empty()) {
      ++vanished;
      continue;
    }
    const auto places = places_of(run, parameter, unit);
    EXPECT_TRUE(std::ranges::any_of(places, [&](auto& place) { return wrong.starts_with(place); }))
        << "run " << i << ": bit " << run.flip.bit << " of " << parameter << ": " << wrong
        << "\nnot " << places[0];
    EXPECT_EQ(compare_with(receipt_of(run.config, folder), {0, kSteps, std::nullopt}, made).wrong,
              "")
        << "run " << i << " without the flip";
  }
  EXPECT_LT(4 * vanished, runs);
  RecordProperty("vanished", vanished);
}

}  // namespace
}  // namespace fsdp
