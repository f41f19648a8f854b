#include <base/text.h>
#include <base/whole_file.h>
#include <command_line/child.h>
#include <command_line/commit.h>
#include <reproduce/audit_row.h>
#include <reproduce/option_text.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <stdexcept>

namespace fsdp {
namespace {

namespace fs = std::filesystem;

// A training run of the row that had the option --receipt, and the path of its receipt.
struct RunWithReceipt {
  std::string options;  // the run's options of train, without --receipt and --receipt-sample
  fs::path receipt;
  bool failed{};  // whether the run failed; then there is no receipt
};

// Returns the options of train as text, without --receipt and --receipt-sample and their values.
std::string without_receipt(TrainOptions options) {
  for (const std::string name : {"--receipt", "--receipt-sample"}) {
    const auto at = std::ranges::find(options, name);
    if (at != options.end()) options.erase(at, std::min(at + 2, options.end()));
  }
  return joined(options);
}

std::string advice_for(const std::string& name) {
  return "; run ./fsdp reproduce --only " + name;
}

// Reads the results of the row in `folder`, and returns the runs that had the option --receipt. The
// receipts are in `folder`/receipts.
std::vector<RunWithReceipt> runs_in(const fs::path& folder, const std::string& name) {
  std::vector<RunWithReceipt> runs;
  const std::string file = folder / (name + ".json");
  std::istringstream lines(content_of(file));
  try {
    for (std::string line; std::getline(lines, line);) {
      const auto run = nlohmann::json::parse(line);
      const TrainOptions options = words(run.value("options", ""));
      const fs::path receipt = value_of(options, "--receipt");
      if (!receipt.empty())
        runs.push_back({without_receipt(options), folder / "receipts" / receipt.filename(),
                        run.contains("error")});
    }
  } catch (const nlohmann::json::exception&) {
    throw std::runtime_error(file + ": is damaged" + advice_for(name));
  }
  return runs;
}

// Runs ./fsdp audit on the receipt of the run. The audit prints to the stdout and stderr of this
// process. Returns the audit's exit status, or 2 if the audit was killed or if the run failed.
int audited(const RunWithReceipt& run) {
  if (run.failed) {
    std::printf("this run failed, and has left no receipt\n");
    return 2;
  }
  const auto end =
      run_child({source_root() + "/fsdp", "audit", run.receipt, "--microbatches", "1"});
  if (end.signal == 0) return end.code;
  std::printf("./fsdp audit %s\n", end.text().c_str());
  return 2;
}

}  // namespace

int audit_row(const std::string& name, const std::vector<fs::path>& folders) {
  const auto has_results = [&](const fs::path& one) { return fs::exists(one / (name + ".json")); };
  const auto folder = std::ranges::find_if(folders, has_results);
  if (folder == folders.end())
    throw std::runtime_error("there are no results of " + name + advice_for(name));
  const std::vector<RunWithReceipt> runs = runs_in(*folder, name);
  if (runs.empty())
    throw std::runtime_error((*folder / (name + ".json")).string() + ": its runs left no receipts" +
                             advice_for(name));
  std::set<int> statuses;
  for (const RunWithReceipt& run : runs) {
    std::printf("%s\n", wrap("./fsdp train " + run.options, 100, 2).c_str());
    std::fflush(stdout);
    statuses.insert(audited(run));
    std::printf("\n");
  }
  const bool wrong = statuses.contains(1), equal = statuses == std::set<int>{0};
  std::printf("%s of %s: %s\n", counted(static_cast<int64_t>(runs.size()), "receipt").c_str(),
              name.c_str(),
              equal   ? "what was computed again is equal"
              : wrong ? "NOT equal"
                      : "not all could be audited");
  return equal ? 0 : wrong ? 1 : 2;
}

}  // namespace fsdp
