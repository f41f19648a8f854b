#include <reproduce/equivalence_table.h>
#include <reproduce/line_table.h>
#include <reproduce/make_tables.h>
#include <reproduce/pairs_table.h>
#include <reproduce/strict_table.h>

namespace fsdp {
namespace {

std::vector<Table> make_gpt2xl(TrainRuns& runs, const FullSettings& settings) {
  const Full full = run_full(settings);
  // full_table() runs first, because to_json() keeps only the fields that full_table() has read.
  const Table table = full_table(settings, full);
  for (const LongResult* run : {&full.fsdp, &full.single}) {
    nlohmann::ordered_json kept = to_json(*run);
    if (!run->receipt.empty()) {
      kept["options"] = kept["options"].get<std::string>() + " --receipt %/gpt2xl.receipt";
      std::filesystem::copy_file(run->receipt, runs.folder() / "gpt2xl.receipt");
    }
    runs.keep(kept);
  }
  return {table};
}

std::vector<Table> make_described(const Row& row, TrainRuns& runs) {
  const Train train = std::ref(runs);
  const Output output = [&](const std::string& command) { return runs.output(command); };
  std::vector<Table> made;
  for (const TableOfRow& table : row.tables)
    made.push_back(table.factors.empty() ? run_lines(table, train, output)
                                         : run_pairs(table, train));
  return made;
}

}  // namespace

std::vector<Table> make_tables(const Row& row, TrainRuns& runs, const FullSettings& full) {
  if (row.code == "gpt2xl") return make_gpt2xl(runs, full);
  if (row.code == "equivalence") return {equivalence_table(std::ref(runs))};
  if (row.code == "strict") return {strict_table(runs.folder())};
  return make_described(row, runs);
}

}  // namespace fsdp
