#include <command_line/run_program.h>
#include <reproduce/audit_row.h>
#include <reproduce/make_tables.h>
#include <reproduce/read_rows.h>
#include <reproduce/report.h>
#include <reproduce/row_list.h>
#include <reproduce/settings.h>

#include <cstdio>
#include <map>

namespace {

// Makes the tables of a row of tables.toml, prints them, and writes them into the folder of the
// results. Returns the verdict: "ok" or "NOT OK".
std::string show(const fsdp::Row& row, fsdp::TrainRuns& runs,
                 const fsdp::ReproduceSettings& settings) {
  const fsdp::Report report{row.name, row.command, fsdp::make_tables(row, runs, settings.run)};
  std::printf("%s", report.markdown().c_str());
  std::fflush(stdout);
  report.write(settings.out, runs.take_json());
  runs.move_receipts(row.name, settings.out + "/receipts");
  return report.verdict();
}

int reproduce(const std::vector<std::string>& arguments) {
  const fsdp::Rows& rows = fsdp::rows_of_tables_toml();
  const fsdp::ReproduceSettings settings = fsdp::parse_reproduce(arguments, rows.rows);
  if (settings.list) {
    std::printf("%s", fsdp::list(rows, settings.verdict_folders()).c_str());
    return 0;
  }
  if (!settings.audit.empty()) return fsdp::audit_row(settings.audit, settings.verdict_folders());
  fsdp::TrainRuns runs(settings.run.train);
  std::map<std::string, std::string> by_verdict;
  for (const fsdp::Row& row : rows.rows)
    if (settings.wants(row)) by_verdict[show(row, runs, settings)] += " " + row.name;
  for (const auto& [verdict, names] : by_verdict)
    std::printf("%s:%s\n", verdict.c_str(), names.c_str());
  const bool ok = !by_verdict.contains("NOT OK");
  std::printf("%s: written to %s\n", ok ? "all ok" : "NOT OK", settings.out.c_str());
  return ok ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return fsdp::run_program("fsdp reproduce", [&] { return reproduce({argv + 1, argv + argc}); });
}
