#include <gtest/gtest.h>
#include <strategies/fsdp/fsdp_strategy.h>
#include <train/trainer.h>

#include <common/temporary_folder.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace fsdp {
namespace {

using Json = nlohmann::json;

std::vector<Json> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<Json> lines;
  for (std::string line; std::getline(file, line);)
    lines.push_back(Json::parse(line));
  return lines;
}

TrainConfig config_of(const std::string& mode, int world) {
  TrainConfig config;
  config.mode = mode;
  config.world = world;
  config.model = "gpt2-tiny";
  config.data = "modular";
  config.modulus = 7;
  config.seq = 3;
  config.batch = 12;
  config.steps = 4;
  config.eval_every = 3;
  config.clip = 1.0;
  config.comm.timeout = std::chrono::seconds(20);
  return config;
}

struct Files {
  std::vector<Json> log, json;
};

Files train(TrainConfig config) {
  const TemporaryFolder folder;
  config.json = folder.path() + "/json";
  config.log = folder.path() + "/log";
  testing::internal::CaptureStdout();
  EXPECT_EQ(run_training(config, {make_fsdp_strategy, shard_layout}), 0);
  testing::internal::GetCapturedStdout();
  return {lines_of(config.log), lines_of(config.json)};
}

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

TEST(LogOfTraining, has_every_field_in_every_step_of_every_mode) {
  for (const std::string mode : {"single", "ddp", "fsdp"}) {
    for (const int world : {1, 2, 3, 4}) {
      SCOPED_TRACE(mode + " on " + std::to_string(world));
      const Files files = train(config_of(mode, world));
      ASSERT_EQ(files.json.size(), 5U);
      const Json& last = files.json.back();
      ASSERT_EQ(files.log.size(), 4U);
      for (size_t step = 0; step < 4; ++step) {
        const Json& line = files.log[step];
        EXPECT_EQ(line.at("step"), step);
        EXPECT_EQ(line.at("loss"), files.json[step]["loss"]);
        EXPECT_EQ(line.at("grad_norm"), files.json[step]["grad_norm"]);
        expect_fields(line, last, step >= 2);
      }
      if (mode != "fsdp") continue;
      const Json& operations = files.log.back()["operations"];
      for (const char* operation : {"all_gather", "reduce_scatter"})
        EXPECT_EQ(operations[operation]["bytes"], last["comm_bytes"][operation]);
    }
  }
}

}  // namespace
}  // namespace fsdp
