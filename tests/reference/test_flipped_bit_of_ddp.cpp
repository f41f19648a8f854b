#include <receipt/receipt.h>
#include <receipt/recomputation.h>

#include <cstdlib>
#include <random>

#include "trained.h"

namespace fsdp {
namespace {

constexpr int64_t kDdpSteps = 3;
constexpr int kDdpMicrobatches = 8;

// Describes a bit that flips once in a run with DDP, in a gradient that lies in its bucket.
struct BucketFlip {
  // True: the bit flips after the all-reduce, in the result that `rank` has; false: the bit flips
  // before the all-reduce.
  bool is_received;
  int rank;
  int64_t step;
  // The index, from 0 on, of the microbatch among those that the rank computes in the step.
  int turn;
  size_t gradient;
  int64_t element;
  int bit;
};

// A parameter of the model. parameters_in() returns the parameters in the order of their gradients,
// so BucketFlip::gradient is an index into what it returns.
struct ModelParameter {
  std::string name, unit;
  int64_t numel{};
};

// The flip of the current run, set before its ranks are forked.
std::optional<BucketFlip> bucket_flip_of_run;

// A BucketReduction that reduces as `reduction` does. On the rank of the flip, in the backward pass
// of the flip, it flips the bit.
class FlippingReduction final : public BucketReduction {
 public:
  // `place`: where the flipped gradient lies in the buckets. `call`: the number of the backward
  // pass in which the bit flips, counted from 0 over all steps of this rank.
  FlippingReduction(std::unique_ptr<BucketReduction> reduction, GradientBuckets::Place place,
                    int64_t call)
      : reduction_(std::move(reduction)), place_(place), call_(call) {}

  void begin(std::vector<at::Tensor> buckets) override {
    ++calls_;
    bucket_ = buckets[place_.bucket];
    reduction_->begin(std::move(buckets));
  }
  void ready(size_t gradient) override {
    if (gradient == bucket_flip_of_run->gradient && !bucket_flip_of_run->is_received) flip();
    reduction_->ready(gradient);
  }
  std::vector<at::Tensor> finish() override {
    auto buckets = reduction_->finish();
    bucket_ = buckets[place_.bucket];
    if (bucket_flip_of_run->is_received) flip();
    bucket_.reset();
    return buckets;
  }

 private:
  void flip() {
    if (calls_ - 1 != call_) return;
    const at::NoGradGuard no_grad;
    const int64_t element = place_.offset + bucket_flip_of_run->element;
    bucket_.view(at::kInt)[element].bitwise_xor_(int64_t{1} << bucket_flip_of_run->bit);
  }

  std::unique_ptr<BucketReduction> reduction_;
  GradientBuckets::Place place_;
  int64_t call_, calls_{};
  at::Tensor bucket_;
};

std::unique_ptr<BucketReduction> make_flipping_reduction(const std::vector<int64_t>& numels,
                                                         BucketSizes sizes,
                                                         std::shared_ptr<Communicator> comm) {
  auto reduction = make_ddp_reduction(numels, sizes, comm);
  if (!bucket_flip_of_run || bucket_flip_of_run->rank != comm->rank()) return reduction;
  const int64_t own = kDdpMicrobatches / comm->world_size();
  return std::make_unique<FlippingReduction>(
      std::move(reduction), gradient_buckets(numels, sizes).places[bucket_flip_of_run->gradient],
      bucket_flip_of_run->step * own + bucket_flip_of_run->turn);
}

TrainConfig config_of_ddp(const Arranged& how) {
  TrainConfig config = config_of(how, kDdpMicrobatches, kDdpSteps);
  // Allows infinite losses and norms, because a flipped bit of an exponent can make a number
  // infinite.
  config.training.allow_nan = true;
  return config;
}

Receipt receipt_of_ddp(TrainConfig config, const TemporaryFolder& folder) {
  config.reports.receipt = folder.path() + "/receipt";
  config.reports.receipt_sample = 1;
  trained(config, folder,
          {make_fsdp_strategy, shard_layout, checkpoint_blocks, construct_on_meta,
           make_flipping_reduction});
  return read_receipt(config.reports.receipt);
}

std::vector<ModelParameter> parameters_in(const RunHashes& made) {
  std::map<int64_t, ModelParameter> by_place;
  for (const auto& [key, event] : made.events)
    if (key.what == TensorKind::initial)
      by_place[event.place] = {key.name, event.unit, event.numel};
  std::vector<ModelParameter> parameters;
  for (const auto& [place, parameter] : by_place)
    parameters.push_back(parameter);
  return parameters;
}

// Returns whether `wrong` is the event that the audit should name. If the bit flips before the
// all-reduce, or on rank 0, the reduced gradient is wrong. If it flips in the copy of another rank,
// only that replica is wrong, from the next step on, and its microbatches show it. If the
// difference is rounded away in that step, a later step shows it.
bool is_named(const std::string& wrong, const TrainConfig& config, const BucketFlip& flip,
              const ModelParameter& parameter) {
  if (!flip.is_received || flip.rank == 0)
    return wrong == "step " + std::to_string(flip.step + 1) + ", unit " + parameter.unit +
                        ", reduced gradient: " + parameter.name;
  for (int64_t step = flip.step + 2; step <= kDdpSteps; ++step) {
    for (int turn = 0; turn < kDdpMicrobatches / config.ranks.world; ++turn) {
      const int microbatch = config.batch_partition().microbatch(flip.rank, turn);
      if (wrong.starts_with("step " + std::to_string(step) + ", microbatch " +
                            std::to_string(microbatch) + ", "))
        return true;
    }
  }
  return false;
}

TEST(FlippedBitOfDdp, an_audit_in_one_process_names_the_gradient_or_replica_with_a_flipped_bit) {
  const TemporaryFolder folder;
  TrainConfig single = config_of_ddp({"single", 8});
  single.reports.hashes = folder.path() + "/hashes";
  trained(single, folder);
  const RunHashes made = read_hashes(single.reports.hashes);
  const std::vector<ModelParameter> parameters = parameters_in(made);
  // The environment variable FSDP_FLIPPED_BITS sets the number of runs, which is 6 by default.
  const char* asked = std::getenv("FSDP_FLIPPED_BITS");
  const int64_t runs = asked == nullptr ? 6 : std::strtoll(asked, nullptr, 10);
  std::mt19937_64 random(11);
  const auto below = [&](int64_t end) { return static_cast<int64_t>(random() % end); };
  int vanished = 0;
  for (int64_t i = 0; i < runs; ++i) {
    const int world = 2 << below(3);
    const auto gradient = static_cast<size_t>(below(static_cast<int64_t>(parameters.size())));
    const ModelParameter& parameter = parameters[gradient];
    const BucketFlip flip{.is_received = below(2) == 0,
                          .rank = static_cast<int>(below(world)),
                          .step = below(kDdpSteps),
                          .turn = static_cast<int>(below(kDdpMicrobatches / world)),
                          .gradient = gradient,
                          .element = below(parameter.numel),
                          .bit = static_cast<int>(below(31))};
    const TrainConfig config = config_of_ddp({"ddp", world});
    const auto wrong = [&] {
      return compare_with(receipt_of_ddp(config, folder), {0, kDdpSteps, std::nullopt}, made).wrong;
    };
    bucket_flip_of_run = flip;
    const std::string found = wrong();
    bucket_flip_of_run.reset();
    // If the audit finds nothing wrong, the flip was rounded away, or it changed a replica in the
    // last step, so that no later step shows it.
    if (found.empty()) {
      ++vanished;
    } else {
      EXPECT_TRUE(is_named(found, config, flip, parameter))
          << "run " << i << ": bit " << flip.bit << " of " << parameter.name << " on rank "
          << flip.rank << " in step " << flip.step + 1 << ": " << found;
    }
    EXPECT_EQ(wrong(), "") << "run " << i << " without the flip";
  }
  EXPECT_LT(2 * vanished, runs);
  RecordProperty("vanished", vanished);
}

}  // namespace
}  // namespace fsdp
