#include <reproduce/checks.h>

namespace fsdp {
namespace {

struct Check {
  std::vector<std::string> columns;  // headings of the columns whose cells the check reads
  std::optional<bool> (*passes)(const Cells&);
};

std::optional<bool> is_solved(const Cells& cells) {
  return cells.at("solved at") != "never";
}

std::optional<bool> is_within_bound(const Cells& cells) {
  if (cells.at("off / on") == "busy") return {};
  return std::stod(cells.at("off / on")) <= 1.05 * std::stod(cells.at("bound"));
}

std::optional<bool> is_below_ddp_if_it_saves_more(const Cells& cells) {
  const bool is_below = std::stod(cells.at("peak")) < std::stod(cells.at("DDP"));
  return is_below == (std::stod(cells.at("saves")) > std::stod(cells.at("needs")));
}

const std::map<std::string, Check> kChecks{
    {"solved", {{"solved at"}, is_solved}},
    {"within bound", {{"off / on", "bound"}, is_within_bound}},
    {"below DDP if it saves more",
     {{"peak", "DDP", "saves", "needs"}, is_below_ddp_if_it_saves_more}}};

}  // namespace

std::vector<std::string> names_of_checks() {
  std::vector<std::string> names;
  for (const auto& [name, check] : kChecks)
    names.push_back(name);
  return names;
}

std::vector<std::string> columns_of_check(const std::string& check) {
  return check.empty() ? std::vector<std::string>() : kChecks.at(check).columns;
}

std::optional<bool> passes(const std::string& check, const Cells& cells) {
  return kChecks.at(check).passes(cells);
}

bool is_as_predicted(const TrainResult& run) {
  return run.last.at("live_bytes_mismatches") == 0 &&
         run.last.at("comm_bytes") == run.last.at("comm_bytes_predicted");
}

}  // namespace fsdp
