#include <reproduce/tables.h>

#include <algorithm>

namespace fsdp {
namespace {

using Json = nlohmann::json;

constexpr int kBatch = 32;  // of the published recipe
const std::vector<int> kWorlds{2, 4, 8};

// Bytes of the rows of tokens that a rank of `run` holds and the process of `alone` does not: every
// rank has the global batch, of which the other reads its part.
int64_t other_rows(const Json& run, const Json& alone) {
  const int64_t rows = run.at("batch").get<int64_t>() - alone.at("batch").get<int64_t>();
  const int64_t tokens = run.at("seq").get<int64_t>() + 1;  // inputs and targets are views of one
  return rows * tokens * static_cast<int64_t>(sizeof(int64_t));
}

// Adds the lines of one phase of `run`, without classes that are never alive in it. A rank has the
// same activations as `alone`, one process that trains on as many rows.
void add_phase(Table& table, const std::string& phase, const Json& run, const Json& alone) {
  for (const auto& [name, bytes] : run.at("live_bytes").at(phase).items()) {
    const int64_t measured = bytes.at("measured");
    const bool rest = name == "rest";
    const Json& of_alone = alone.at("live_bytes").at(phase).at(name).at("measured");
    const int64_t predicted = rest ? of_alone.get<int64_t>() + other_rows(run, alone)
                                   : bytes.at("predicted").get<int64_t>();
    if (measured == 0 && predicted == 0) continue;
    table.lines.push_back({{phase, name, std::to_string(predicted), std::to_string(measured),
                            std::to_string(measured - predicted), rest ? "single" : "replay"},
                           measured == predicted});
  }
}

Table live_bytes_table(const Train& train, int world) {
  Table table;
  table.title = "Live bytes of rank 0, small model, W = " + std::to_string(world);
  table.header = {"phase", "class", "predicted", "measured", "difference", "predicted from"};
  table.add_lines({"all"}, [&] {
    const auto& run = train(published_small("fsdp", world)).last;
    const auto& alone = train(published_small("single", 1, kBatch / world)).last;
    for (const std::string phase : {"forward", "backward", "optimizer"})
      add_phase(table, phase, run, alone);
    const int64_t mismatches = run.at("live_bytes_mismatches");
    table.lines.push_back({{"all", "of all ranks", "0", std::to_string(mismatches),
                            std::to_string(mismatches), "values that differ"},
                           mismatches == 0});
  });
  return table;
}

int64_t peak(const TrainResult& run) {
  const std::vector<int64_t> ranks = run.last.at("peak_bytes");
  return *std::max_element(ranks.begin(), ranks.end());
}

// Sizes of the padded units, in bytes.
struct Sizes {
  int64_t all{}, root{}, largest{};
};

Sizes sizes_of(const TrainResult& run) {
  Sizes sizes;
  for (const Json& unit : run.last.at("units")) {
    const int64_t bytes = 4 * unit.at("padded").get<int64_t>();
    sizes.all += bytes;
    if (unit.at("root")) {
      sizes.root = bytes;
    } else {
      sizes.largest = std::max(sizes.largest, bytes);
    }
  }
  return sizes;
}

std::string why_not_below(int world) {
  return "At W = " + std::to_string(world) +
         " FSDP is not below DDP: it saves (4 - 4/W) N, which is not more than the 2R + 4U that it "
         "needs on top of its shards.";
}

Line peaks_of(const Train& train, int world, std::vector<std::string>& notes) {
  const auto& fsdp_run = train(published_small("fsdp", world));
  const int64_t ddp = peak(train(published_small("ddp", world)));
  const int64_t fsdp = peak(fsdp_run);
  const Sizes sizes = sizes_of(fsdp_run);
  const int64_t saved = 4 * sizes.all - 4 * sizes.all / world;
  const int64_t added = 2 * sizes.root + 4 * sizes.largest;
  const bool below = fsdp < ddp;
  if (!below && saved <= added) notes.push_back(why_not_below(world));
  return {{std::to_string(world), std::to_string(ddp), std::to_string(fsdp),
           fixed(static_cast<double>(fsdp) / static_cast<double>(ddp), 3), std::to_string(saved),
           std::to_string(added)},
          below == (saved > added)};
}

}  // namespace

std::vector<Table> memory_tables(const Train& train) {
  std::vector<Table> tables;
  for (const int world : kWorlds)
    tables.push_back(live_bytes_table(train, world));
  tables.back().notes.push_back(
      "The largest number of bytes alive at any time of the phase, from the second step on. Classes "
      "that are never alive are left out. replay: predicted from the sizes of the units. rest "
      "(activations, temporaries and tokens) is predicted from a measurement: what --mode single "
      "--world 1 needs for batch / W rows, plus the tokens of the other rows.");

  Table table;
  table.title = "Peak live bytes of a rank over the whole run: DDP and FSDP";
  table.header = {"W", "DDP", "FSDP", "FSDP / DDP", "(4 - 4/W) N", "2R + 4U"};
  for (const int world : kWorlds) {
    table.add({std::to_string(world)}, [&] { return peaks_of(train, world, table.notes); });
  }
  table.notes.emplace_back(
      "N: bytes of all units, R: of the root, U: of the largest other unit. A line is ok if FSDP is "
      "below DDP exactly when (4 - 4/W) N is larger than 2R + 4U.");
  tables.push_back(table);
  return tables;
}

}  // namespace fsdp
