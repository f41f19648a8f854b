#include <exchange/export.h>

#include "trained.h"

namespace fsdp {
namespace {

const std::vector<Arranged> kArrangements{{"fsdp", 1}, {"fsdp", 2},    {"fsdp", 3},
                                          {"fsdp", 4}, {"fsdp", 4, 2}, {"fsdp", 2, 1},
                                          {"ddp", 2},  {"ddp", 3},     {"single", 2}};

class Init : public testing::Test {
 protected:
  // Trains two steps on three ranks, and exports the parameters as files of transformers.
  Init() {
    TrainConfig config = config_of({"fsdp", 3}, 3, 2);
    config.checkpoint.dir = folder_.path() + "/run";
    trained_ = train(config, folder_);
    export_parameters(config.checkpoint.dir, ExportFormat::hf, exported());
  }
  std::string exported() const { return folder_.path() + "/hf"; }

  TemporaryFolder folder_;
  nlohmann::json trained_;
};

TEST_F(Init, every_mode_that_loads_an_export_with_init_has_the_bits_of_the_exported_parameters) {
  for (const Arranged& how : kArrangements) {
    SCOPED_TRACE(named(how));
    TrainConfig config = config_of(how, how.world, 0);
    config.model.init = exported();
    const auto last = train(config, folder_);
    EXPECT_EQ(last["param_sha256"], trained_["param_sha256"]);
    EXPECT_EQ(last["live_bytes_mismatches"], 0);
  }
}

TEST_F(Init, every_mode_that_trains_from_an_export_ends_with_the_same_bits) {
  nlohmann::json expected;
  for (const Arranged& how :
       std::vector<Arranged>{{"single", 2}, {"ddp", 2}, {"fsdp", 2}, {"fsdp", 1}}) {
    SCOPED_TRACE(named(how));
    TrainConfig config = config_of(how, 2, 1);
    config.model.init = exported();
    const auto last = train(config, folder_);
    EXPECT_EQ(last["live_bytes_mismatches"], 0);
    if (expected.is_null()) expected = last["state_sha256"];
    EXPECT_EQ(last["state_sha256"], expected);
    EXPECT_NE(last["param_sha256"], trained_["param_sha256"]);
  }
}

}  // namespace
}  // namespace fsdp
