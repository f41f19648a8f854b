#pragma once

#include <gtest/gtest.h>
#include <strategies/fsdp/fsdp_strategy.h>
#include <train/trainer.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <string>

#include <common/temporary_folder.h>

// Trains gpt2-tiny in some mode.
namespace fsdp {

struct Arranged {
  std::string mode;
  int world;
  int shard_size{};
};

inline std::string named(const Arranged& how) {
  return how.mode + " on " + std::to_string(how.world) +
         (how.shard_size > 0 ? ", shards of " + std::to_string(how.shard_size) : "");
}

inline TrainConfig config_of(const Arranged& how, int parts, int64_t steps) {
  TrainConfig config;
  config.mode = how.mode;
  config.world = how.world;
  config.shard_size = how.shard_size;
  config.model = "gpt2-tiny";
  config.data = "published";
  config.parts = parts;
  config.batch = 24;
  config.seq = 6;
  config.steps = steps;
  config.optimizer.lr = 0.01;
  config.no_decay = "bias";
  config.clip = 0.1;
  config.comm.timeout = std::chrono::seconds(20);
  return config;
}

// The last line of the JSON file.
inline nlohmann::json train(TrainConfig config, const TemporaryFolder& folder) {
  config.json = folder.path() + "/run.json";
  testing::internal::CaptureStdout();
  const int status = run_training(config, {make_fsdp_strategy, shard_layout});
  testing::internal::GetCapturedStdout();
  EXPECT_EQ(status, 0);
  std::ifstream file(config.json);
  std::string line, last;
  while (std::getline(file, line))
    last = line;
  return status == 0 ? nlohmann::json::parse(last) : nlohmann::json();
}

}  // namespace fsdp
