#include <gtest/gtest.h>
#include <train/print_units.h>
#include <trainer/mode_of.h>

#include <sstream>

#include "untrained_strategy.h"

namespace fsdp {
namespace {

ShardLayout three_units(const std::string& last = "layers.1") {
  ShardLayout layout;
  layout.world_size = 2;
  layout.units = {
      {"root", 1024, true, false}, {"layers.0", 64, false, true}, {last, 96, false, true}};
  layout.parameters = {{"embedding", 0, 0, 1009, false},
                       {"layers.0.weight", 1, 0, 40, true},
                       {"layers.0.bias", 1, 48, 5, true},
                       {"layers.1.weight", 2, 0, 40, true},
                       {"layers.1.bias", 2, 48, 5, false}};
  return layout;
}

TEST(UnitsTable, the_table_of_units_has_a_line_for_each_unit_and_one_for_the_sums) {
  EXPECT_EQ(units_table({}, three_units()),
            "unit      parameters  numel  padded  shard bytes  gathered bytes  trainable\n"
            "root               1  1,009   1,024        2,048           4,096  no\n"
            "layers.0           2     45      64          128             256  yes\n"
            "layers.1           2     45      96          192             384  partly\n"
            "total              5  1,099   1,184        2,368           4,736  partly\n");
}

TEST(UnitsTable, the_units_table_counts_gathered_bytes_in_16_bits_unless_a_unit_is_kept_in_fp32) {
  TrainConfig config;
  config.precision.policy = {at::kBFloat16, at::kBFloat16};
  config.precision.keep_fp32 = "layers";
  const std::string table = units_table(config, three_units());
  EXPECT_NE(table.find("1,024        2,048           2,048  no\n"), std::string::npos) << table;
  EXPECT_NE(table.find("64          128             256  yes\n"), std::string::npos) << table;
}

TEST(UnitsTable, the_units_table_cuts_the_beginning_of_a_long_unit_name_to_fit_100_columns) {
  const std::string long_name = std::string(200, 'x').append(".layers.1");
  std::istringstream lines(units_table({}, three_units(long_name)));
  size_t widest = 0;
  for (std::string line; std::getline(lines, line);) {
    widest = std::max(widest, line.size());
    if (line.starts_with("...")) {
      EXPECT_NE(line.find("x.layers.1  "), std::string::npos) << line;
    }
  }
  EXPECT_EQ(widest, 100);
}

TEST(UnitsTable, the_units_table_shows_a_name_whole_beside_the_largest_numbers) {
  ShardLayout layout;
  layout.units = {{"token_embeddings", 2'127'208'448, false, true}};
  layout.parameters = {{"token_embeddings.weight", 0, 0, 2'127'208'000, true}};
  EXPECT_NE(units_table({}, layout).find("\ntoken_embeddings  "), std::string::npos);
}

TEST(PrintUnits, print_units_trains_nothing_in_any_mode) {
  for (const char* mode : {"single", "ddp", "fsdp"}) {
    TrainConfig config;
    config.ranks.mode = mode_of(mode);
    config.ranks.world = 2;
    config.reports.print_units = true;
    // This implementation has no functions that train, so the run fails if it trains.
    FsdpImplementation fsdp{};
    fsdp.shard_layout = [](const TrainConfig&, const Workload&) { return three_units(); };
    const Outcome run = train(fsdp, config);
    EXPECT_EQ(run.status, 0) << mode;
    EXPECT_EQ(run.output, "small on 2 ranks, --wrap auto\n" + units_table({}, three_units()))
        << mode;
  }
}

}  // namespace
}  // namespace fsdp
