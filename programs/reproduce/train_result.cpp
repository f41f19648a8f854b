#include <base/median.h>
#include <reproduce/train_result.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace fsdp {

nlohmann::ordered_json Fields::kept() const {
  nlohmann::ordered_json fields = nlohmann::ordered_json::object();
  for (const auto& [key, value] : items())
    if (read.contains(key)) fields[key] = value;
  return fields;
}

double TrainResult::tokens_per_s() const {
  std::vector<double> all;
  for (size_t step = 1; step < steps.size(); ++step)
    all.push_back(steps[step].at("tokens_per_s"));
  return median(all);
}

double TrainResult::seconds_of(const std::string& what) const {
  const auto length = [](const Fields& step) {
    return step.at("seconds").at("step").get<double>();
  };
  return std::ranges::min_element(steps.begin() + 1, steps.end(), {}, length)
      ->at("seconds")
      .at(what);
}

TrainResult parse_train_result(const std::string& text) {
  TrainResult result;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    result.steps.emplace_back(nlohmann::json::parse(line));
  const auto final = [](const Fields& line) { return line.value("final", false); };
  const auto last = std::ranges::find_if(result.steps, final);
  if (last == result.steps.end() || last + 1 != result.steps.end())
    throw std::runtime_error("the last line that train wrote is not the only final one");
  result.last = std::move(*last);
  result.steps.pop_back();
  return result;
}

}  // namespace fsdp
