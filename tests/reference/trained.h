#pragma once

#include <gtest/gtest.h>
#include <meta_init.h>
#include <strategies/fsdp/ddp_reduction.h>
#include <strategies/fsdp/fsdp_strategy.h>
#include <train/trainer.h>
#include <trainer/mode_of.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <string>
#include <vector>

#include <common/temporary_folder.h>

// Functions that train gpt2-tiny in a given mode.
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
  config.ranks.mode = mode_of(how.mode);
  config.ranks.world = how.world;
  config.sharding.shard_size = how.shard_size;
  config.model.name = "gpt2-tiny";
  config.data.kind = DataKind::published;
  config.training.microbatches = parts;
  config.training.batch = 24;
  config.training.seq = 6;
  config.training.steps = steps;
  config.optimizer.lr = 0.01;
  config.optimizer.no_decay = "bias";
  config.optimizer.clip = 0.1;
  config.ranks.comm.timeout = std::chrono::seconds(20);
  return config;
}

inline std::vector<nlohmann::json> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);)
    lines.push_back(nlohmann::json::parse(line));
  return lines;
}

// Trains, and returns the parsed lines of the run's JSON file.
inline std::vector<nlohmann::json> trained(TrainConfig config, const TemporaryFolder& folder,
                                           const FsdpImplementation& fsdp = {
                                               make_fsdp_strategy, shard_layout, checkpoint_blocks,
                                               construct_on_meta, make_ddp_reduction}) {
  config.reports.json = folder.path() + "/run.json";
  testing::internal::CaptureStdout();
  const int status = run_training(config, fsdp);
  testing::internal::GetCapturedStdout();
  EXPECT_EQ(status, 0);
  if (status != 0) return {{}};
  return lines_of(config.reports.json);
}

// Trains, and returns the parsed last line of the run's JSON file.
inline nlohmann::json train(const TrainConfig& config, const TemporaryFolder& folder) {
  return trained(config, folder).back();
}

}  // namespace fsdp
