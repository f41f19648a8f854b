#include <base/child_program.h>
#include <base/text.h>
#include <base/whole_file.h>
#include <command_line/commit.h>
#include <reproduce/audit_row.h>
#include <reproduce/option_text.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

namespace fsdp {
namespace {

namespace fs = std::filesystem;

// A run of the row, and its receipt.
struct RunWithReceipt {
  std::string options;  // without those about the receipt
  fs::path receipt;
};

// Returns the options without those about the receipt.
std::string without_receipt(TrainOptions options) {
  for (const std::string name : {"--receipt", "--receipt-sample"}) {
    const auto at = std::ranges::find(options, name);
    if (at != options.end()) options.erase(at, std::min(at + 2, options.end()));
  }
  return joined(options);
}

// Returns the runs in the results of a row that have left a receipt in `folder`/receipts.
std::vector<RunWithReceipt> runs_in(const fs::path& folder, const std::string& name) {
  std::vector<RunWithReceipt> runs;
  std::istringstream lines(content_of(folder / (name + ".json")));
  for (std::string line; std::getline(lines, line);) {
    const TrainOptions options = words(nlohmann::json::parse(line).value("options", ""));
    const fs::path receipt = value_of(options, "--receipt");
    if (!receipt.empty())
      runs.push_back({without_receipt(options), folder / "receipts" / receipt.filename()});
  }
  return runs;
}

// Runs ./fsdp audit with the output of this process. Returns its exit status.
int audited(const fs::path& receipt) {
  ChildProgram audit([&](int) {
    return std::vector<std::string>{source_root() + "/fsdp", "audit", receipt, "--microbatches",
                                    "1"};
  });
  while (!audit.has_ended(std::chrono::seconds(1))) {
  }
  const ChildProgram::End end = audit.end(std::chrono::milliseconds(0));
  if (end.signal != 0) throw std::runtime_error("./fsdp audit " + end.text());
  return end.code;
}

}  // namespace

int audit_row(const std::string& name, const std::vector<fs::path>& folders) {
  const auto has_results = [&](const fs::path& one) { return fs::exists(one / (name + ".json")); };
  const auto folder = std::ranges::find_if(folders, has_results);
  const std::string advice = "; run ./fsdp reproduce --only " + name;
  if (folder == folders.end()) throw std::runtime_error("there are no results of " + name + advice);
  const std::vector<RunWithReceipt> runs = runs_in(*folder, name);
  if (runs.empty())
    throw std::runtime_error((*folder / (name + ".json")).string() + ": its runs left no receipts" +
                             advice);
  int worst = 0;
  for (const RunWithReceipt& run : runs) {
    std::printf("%s\n", wrap("./fsdp train " + run.options, 100, 2).c_str());
    std::fflush(stdout);
    worst = std::max(worst, audited(run.receipt));
    std::printf("\n");
  }
  std::printf("%s of %s: %s\n", counted(static_cast<int64_t>(runs.size()), "receipt").c_str(),
              name.c_str(),
              worst == 0 ? "what was computed again is equal" : "NOT equal, or not audited");
  return worst;
}

}  // namespace fsdp
