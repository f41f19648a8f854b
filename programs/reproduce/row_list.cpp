#include <base/text.h>
#include <reproduce/report.h>
#include <reproduce/row_list.h>

#include <cstdio>

namespace fsdp {
namespace {

std::string verdict_of(const Row& row, const std::vector<std::filesystem::path>& results) {
  if (row.kind == "test") return "tests";
  const std::string shown = row.same_as.empty() ? row.name : row.same_as;
  const bool is_picture = row.same_as.empty() && !row.has_tables();
  return is_picture ? "-" : last_verdict(results, shown);
}

}  // namespace

std::string list(const Rows& rows, const std::vector<std::filesystem::path>& results) {
  std::string text = " # name           source             kind       min last    command\n";
  for (const Row& row : rows.rows) {
    char line[200];
    std::snprintf(line, sizeof line, "%2d %-14s %-18s %-10s %3d %-7s ", row.number,
                  row.name.c_str(), row.source.c_str(), row.kind.c_str(), row.minutes,
                  verdict_of(row, results).c_str());
    text += wrap(line + row.command, kColumns, 16) + "\n";
  }
  return text + wrap(rows.legend, kColumns) + "\n";
}

}  // namespace fsdp
