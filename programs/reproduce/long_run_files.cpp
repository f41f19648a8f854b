#include <reproduce/long_run_files.h>

#include <fstream>
#include <map>
#include <utility>

namespace fsdp {

std::vector<Fields> logged_steps(const std::filesystem::path& file) {
  std::map<int64_t, nlohmann::json> steps;
  std::ifstream lines(file);
  std::string line;
  while (std::getline(lines, line)) {
    auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && json.contains("loss")) steps[json.at("step")] = json;
  }
  std::vector<Fields> result;
  for (auto& [step, json] : steps)
    result.push_back(std::move(json));
  return result;
}

}  // namespace fsdp
