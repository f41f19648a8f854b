#include <state/tensor_name.h>

#include <regex>

namespace fsdp {

std::string TensorName::text() const {
  std::string text = parameter;
  if (kind != StateKind::parameter) text += '/' + std::string(to_string(kind));
  if (range) text += ':' + std::to_string(range->first) + '-' + std::to_string(range->second);
  return text;
}

TensorName TensorName::parse(const std::string& text) {
  static const std::regex kRange(":([0-9]{1,18})-([0-9]{1,18})$");
  TensorName name{text, StateKind::parameter, {}};
  std::smatch match;
  if (std::regex_search(text, match, kRange)) {
    name.range.emplace(std::stoll(match[1]), std::stoll(match[2]));
    name.parameter = match.prefix();
  }
  for (const StateKind kind : {StateKind::exp_avg, StateKind::exp_avg_sq, StateKind::step}) {
    const std::string end = '/' + std::string(to_string(kind));
    if (!name.parameter.ends_with(end)) continue;
    name.parameter.resize(name.parameter.size() - end.size());
    name.kind = kind;
    break;
  }
  return name;
}

}  // namespace fsdp
