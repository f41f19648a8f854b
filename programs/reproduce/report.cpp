#include <base/whole_file.h>
#include <reproduce/circumstances.h>
#include <reproduce/report.h>

#include <algorithm>
#include <fstream>

namespace fsdp {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

std::string Report::verdict() const {
  const auto ok = [](const Table& table) { return table.ok(); };
  return std::ranges::all_of(tables, ok) ? "ok" : "NOT OK";
}

std::string Report::markdown() const {
  std::string text;
  for (const Table& table : tables)
    text += table.markdown() + "\n";
  return text;
}

void Report::write(const std::filesystem::path& folder, const Json& runs) const {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  Json json{{"command", command}, {"verdict", verdict()}};
  const Json about = circumstances();
  json.update(about);
  std::string lines = json.dump() + "\n";
  for (const Json& run : runs)
    lines += run.dump() + "\n";
  write_whole_file(folder / (name + ".md"),
                   "# " + command + "\n" + text_of_circumstances(about) + "\n\n" + markdown());
  write_whole_file(folder / (name + ".json"), lines);
}

std::string last_verdict(const std::vector<std::filesystem::path>& folders,
                         const std::string& name) {
  for (const auto& folder : folders) {
    std::ifstream file(folder / (name + ".json"));
    std::string line;
    if (std::getline(file, line)) return Json::parse(line).at("verdict");
  }
  return "not run";
}

}  // namespace fsdp
