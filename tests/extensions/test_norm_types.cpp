#include <limits>

#include "models.h"
#include "trained.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(NormTypes);

constexpr double kInfinity = std::numeric_limits<double>::infinity();

MULTI_RANK_TEST(NormTypes, give_the_same_bits_in_all_modes_and_cost_what_is_predicted) {
  const Workload workload = workload_of(language_models().at(1));
  TrainConfig config = extension_config("fsdp", world_size());
  const auto unclipped = hash_of_single(config, workload);
  config.clip = 0.01;
  for (const double type : {1.0, 2.0, 2.5, kInfinity}) {
    SCOPED_TRACE(type);
    config.norm_type = type;
    const auto expected = hash_of_single(config, workload);
    EXPECT_NE(expected, unclipped) << "nothing was clipped";
    for (const char* mode : {"ddp", "fsdp"}) {
      config.mode = mode;
      expect_as_predicted(config, workload, expected);
    }
  }
}

}  // namespace
}  // namespace fsdp
