#include <base/text.h>
#include <reproduce/described.h>
#include <reproduce/registry.h>
#include <reproduce/report.h>

#include <cstdio>
#include <map>

namespace fsdp {
namespace {

const std::string kDocuments =
    "Writeup: R. Yi, FSDP Implementation, A Technical Writeup, 2024. Manual: Manual FSDP "
    "Implementation Report. Notes: Fully Sharded Data Parallelism, notes with seventeen pictures. "
    "Duke: J. Cai, X. Yin, Y. Zhou, Reimplementing PyTorch FSDP, Duke University. Digest: of Zhao et "
    "al., PyTorch FSDP, 2023. tests: ./fsdp test runs it; -: a picture, without a verdict.";

Tables full(TrainRuns& runs, const FullSettings& settings) {
  const Full full = run_full(settings);
  for (const LongResult* run : {&full.fsdp, &full.single})
    runs.keep(to_json(*run));
  return {full_table(settings, full)};
}

// What makes the tables of a row that no line of the text describes.
std::map<std::string, std::function<Tables(TrainRuns&)>> coded(const FullSettings& settings) {
  return {{"gpt2xl", [=](TrainRuns& runs) { return full(runs, settings); }},
          {"small", [](TrainRuns& runs) { return Tables{equivalence_table(std::ref(runs))}; }},
          {"strict", [](TrainRuns& runs) { return Tables{strict_table(runs.folder())}; }}};
}

std::string verdict_of(const Row& row, const std::filesystem::path& results) {
  if (row.kind == "test") return "tests";
  if (row.set == "never") return "-";
  const bool as = row.set.starts_with("as ");
  return last_verdict(results, as ? row.set.substr(3) : row.name);
}

}  // namespace

std::vector<Row> registry(const FullSettings& settings) {
  const auto by_name = coded(settings);
  std::vector<Row> rows;
  std::map<std::string, std::vector<std::string>> lines;
  for (const std::string& line : whole_lines(kRows)) {
    if (line[0] != '#') {
      lines[rows.back().name].push_back(line);
      continue;
    }
    const auto fields = split(line.substr(2), " | ");
    const auto name = fields.at(0).find(' ') + 1;
    rows.push_back({std::stoi(fields[0]),
                    fields[0].substr(name),
                    fields.at(1),
                    fields.at(2),
                    std::stoi(fields.at(3)),
                    fields.at(4),
                    "",
                    {}});
    rows.back().command =
        fields.size() > 5 ? fields[5] : "./fsdp reproduce --only " + rows.back().name;
  }
  for (Row& row : rows) {
    if (by_name.contains(row.name)) {
      row.make = by_name.at(row.name);
    } else if (lines.contains(row.name)) {
      row.make = [text = lines[row.name]](TrainRuns& runs) {
        const Output output = [&](const std::string& command) { return runs.output(command); };
        return described_tables(text, std::ref(runs), output);
      };
    }
  }
  return rows;
}

std::string list(const std::vector<Row>& rows, const std::filesystem::path& results) {
  std::string text = " # name           source             kind       min last    command\n";
  for (const Row& row : rows) {
    char line[200];
    std::snprintf(line, sizeof line, "%2d %-14s %-18s %-10s %3d %-7s ", row.number,
                  row.name.c_str(), row.source.c_str(), row.kind.c_str(), row.minutes,
                  verdict_of(row, results).c_str());
    text += wrap(line + row.command, kColumns, 16) + "\n";
  }
  return text + wrap(kDocuments, kColumns) + "\n";
}

}  // namespace fsdp
