#include <launch/launched.h>
#include <report/telemetry.h>
#include <strategies/language_modeling.h>
#include <train/print_units.h>

#include <algorithm>
#include <array>
#include <cstdio>

namespace fsdp {
namespace {

constexpr size_t kColumns = 100;
constexpr int64_t kBytes = 4;  // bytes of an fp32 number

// A row of the table, as texts: the unit's name, the number of its parameters, the number of their
// elements, this number with padding, the bytes of one rank's shard, the bytes of the gathered
// unit, and whether the parameters are trainable (yes, partly or no).
using Row = std::array<std::string, 7>;

// The numbers in a unit's row of the table, or their sums over units.
struct Numbers {
  int64_t parameters{}, trainable{}, numel{}, padded{};
  int64_t gathered{};  // number of bytes of the gathered unit

  void operator+=(const Numbers& other) {
    parameters += other.parameters;
    trainable += other.trainable;
    numel += other.numel;
    padded += other.padded;
    gathered += other.gathered;
  }
};

std::vector<Numbers> numbers_of_units(const TrainConfig& config, const ShardLayout& layout) {
  std::vector<Numbers> units;
  for (const auto& unit : layout.units)
    units.push_back({.padded = unit.padded_numel});
  for (const auto& parameter : layout.parameters) {
    Numbers& unit = units[parameter.unit];
    unit += {1, parameter.trainable ? 1 : 0, parameter.numel, 0};
    unit.gathered = unit.padded * config.precision.policy_of(parameter.name).param_bytes();
  }
  return units;
}

Row row(const std::string& name, const Numbers& unit, int world_size) {
  const std::string trainable = unit.trainable == unit.parameters ? "yes"
                                : unit.trainable == 0             ? "no"
                                                                  : "partly";
  return {name,
          with_commas(unit.parameters),
          with_commas(unit.numel),
          with_commas(unit.padded),
          with_commas(unit.padded * kBytes / world_size),
          with_commas(unit.gathered),
          trainable};
}

// Returns `name` or, if it is longer than `columns` characters, "..." and the end of `name`.
std::string shortened(const std::string& name, size_t columns) {
  if (name.size() <= columns) return name;
  return "..." + name.substr(name.size() + 3 - columns);
}

std::string text_of(std::vector<Row> rows) {
  std::array<size_t, std::tuple_size_v<Row>> widths{};
  size_t numbers = 0;  // number of characters in all columns but the first, with their gaps
  for (size_t column = 0; column < widths.size(); ++column) {
    for (const Row& row : rows)
      widths[column] = std::max(widths[column], row[column].size());
    if (column > 0) numbers += 2 + widths[column];
  }
  widths[0] = std::min(widths[0], kColumns - numbers);
  std::string text;
  for (Row& row : rows) {
    row[0] = shortened(row[0], widths[0]);
    text += row[0] + std::string(widths[0] - row[0].size(), ' ');
    for (size_t column = 1; column + 1 < widths.size(); ++column)
      text += std::string(2 + widths[column] - row[column].size(), ' ') + row[column];
    text += "  " + row.back() + "\n";
  }
  return text;
}

}  // namespace

std::string units_table(const TrainConfig& config, const ShardLayout& layout) {
  std::vector<Row> rows{
      {"unit", "parameters", "numel", "padded", "shard bytes", "gathered bytes", "trainable"}};
  const auto units = numbers_of_units(config, layout);
  Numbers sum;
  for (size_t i = 0; i < units.size(); ++i) {
    rows.push_back(row(layout.units[i].name, units[i], layout.world_size));
    sum += units[i];
  }
  rows.push_back(row("total", sum, layout.world_size));
  return text_of(rows);
}

void print_units(const TrainConfig& config, const FsdpImplementation& fsdp) {
  const auto self = launched_rank();
  if (self && self->rank > 0) return;
  const auto layout = fsdp.shard_layout(config, language_modeling(config, nullptr));
  std::printf("%s on %d %s, --wrap %s\n%s", config.model.name.c_str(), config.ranks.world,
              config.ranks.world == 1 ? "rank" : "ranks", config.sharding.wrap.c_str(),
              units_table(config, layout).c_str());
  std::fflush(stdout);
}

}  // namespace fsdp
