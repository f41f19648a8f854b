#include "trained.h"

namespace fsdp {
namespace {

using Json = nlohmann::json;

void expect_fields(const Json& line, const Json& last, bool evaluated) {
  const Json& seconds = line.at("seconds");
  double parts = 0;
  for (const char* part : {"computing", "waiting", "data", "optimizer"}) {
    EXPECT_GE(seconds.at(part), 0) << part;
    parts += seconds.at(part).get<double>();
  }
  EXPECT_NEAR(parts, seconds.at("step").get<double>(), 1e-9);
  EXPECT_GT(seconds.at("data"), 0);
  double waiting = 0;
  for (const auto& [operation, traffic] : line.at("operations").items()) {
    waiting += traffic.at("seconds_waiting").get<double>();
    EXPECT_GT(traffic.at("calls"), 0) << operation;
  }
  EXPECT_NEAR(waiting, seconds.at("waiting").get<double>(), 1e-9);
  EXPECT_GT(line.at("tokens_per_s"), 0);
  EXPECT_EQ(line.contains("held_out"), evaluated);
  const Json& live = line.at("live_bytes");
  int64_t now = 0;
  for (const auto& [cls, bytes] : live.items())
    if (cls != "total") now += bytes.at("now").get<int64_t>();
  EXPECT_EQ(live.at("total").at("now"), now);
  EXPECT_EQ(live.at("shards").at("peak"), last["live_bytes"]["optimizer"]["shards"]["measured"]);
}

TEST(LogLine, in_every_mode_each_step_writes_a_log_line_with_times_losses_and_bytes) {
  for (const std::string mode : {"single", "ddp", "fsdp"}) {
    for (const int world : {1, 2, 3, 4}) {
      SCOPED_TRACE(mode + " on " + std::to_string(world));
      const TemporaryFolder folder;
      TrainConfig config = config_of({mode, world}, world, 4);
      config.data.kind = DataKind::modular;
      config.data.modulus = 7;
      config.training.seq = 3;
      config.data.eval_every = 3;
      config.reports.log = folder.path() + "/log";
      const auto json = trained(config, folder), log = lines_of(config.reports.log);
      ASSERT_EQ(json.size(), 5U);
      ASSERT_EQ(log.size(), 4U);
      for (size_t step = 0; step < 4; ++step) {
        EXPECT_EQ(log[step].at("step"), step);
        EXPECT_EQ(log[step].at("loss"), json[step]["loss"]);
        EXPECT_EQ(log[step].at("grad_norm"), json[step]["grad_norm"]);
        expect_fields(log[step], json.back(), step >= 2);
      }
      if (mode != "fsdp") continue;
      for (const char* operation : {"all_gather", "reduce_scatter"})
        EXPECT_EQ(log.back()["operations"][operation]["bytes"],
                  json.back()["comm_bytes"][operation]);
    }
  }
}

}  // namespace
}  // namespace fsdp
