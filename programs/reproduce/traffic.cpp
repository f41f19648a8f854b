#include <reproduce/tables.h>

#include <set>

namespace fsdp {
namespace {

void add_run(Table& table, const Train& train, int world, const std::string& name,
             const TrainOptions& options) {
  table.add_lines({std::to_string(world), name}, [&] {
    const auto& last = train(options).last;
    const auto& predicted = last.at("comm_bytes_predicted");
    const auto& measured = last.at("comm_bytes");
    std::set<std::string> operations;
    for (const auto& item : predicted.items())
      operations.insert(item.key());
    for (const auto& item : measured.items())
      operations.insert(item.key());
    for (const std::string& operation : operations) {
      const int64_t expected = predicted.value(operation, int64_t{0});
      const int64_t bytes = measured.value(operation, int64_t{0});
      table.lines.push_back({{std::to_string(world), name, operation, std::to_string(expected),
                              std::to_string(bytes), std::to_string(bytes - expected)},
                             bytes == expected});
    }
  });
}

}  // namespace

Table traffic_table(const Train& train) {
  Table table;
  table.title = "Traffic: bytes that a rank receives in a step, small model";
  table.header = {"W", "run", "operation", "predicted", "measured", "difference"};
  for (const int world : {2, 4, 8}) {
    TrainOptions kept = published_small("fsdp", world);
    kept.insert(kept.end(), {"--reshard-after-forward", "off", "--steps", "2"});
    add_run(table, train, world, "ddp", published_small("ddp", world));
    add_run(table, train, world, "fsdp", published_small("fsdp", world));
    add_run(table, train, world, "fsdp, no reshard", kept);
  }
  table.notes.emplace_back(
      "N and R are the bytes of all units and of the root, with padding. all_gather: (W-1)/W (2N - "
      "R), without reshard after forward (W-1)/W N. reduce_scatter: (W-1)/W N. DDP's all_reduce: "
      "2(W-1)/W of the buckets, each rounded up to W elements. metrics: the mean loss.");
  return table;
}

}  // namespace fsdp
