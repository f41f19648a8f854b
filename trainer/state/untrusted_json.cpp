#include <state/untrusted_json.h>

#include <stdexcept>
#include <type_traits>

namespace fsdp {

template <typename Json>
Json read_json_object(std::string_view text) {
  constexpr size_t kDeepest = 100, kMostMembers = 1000;
  // If `Json` is ordered_json, checks the number of members, because an ordered_json compares the
  // names of all members one by one to find a member.
  constexpr bool kOrdered = std::is_same_v<Json, nlohmann::ordered_json>;
  using Event = typename Json::parse_event_t;
  // For each JSON object that the parser is inside of, the number of its members so far; for each
  // such array, 0.
  std::vector<size_t> members;
  const auto check = [&](int, Event event, Json&) {
    if (event == Event::object_start || event == Event::array_start) members.push_back(0);
    if (event == Event::object_end || event == Event::array_end) members.pop_back();
    if (members.size() > kDeepest) throw std::runtime_error("is JSON that is nested too deep");
    if (kOrdered && event == Event::key && ++members.back() > kMostMembers)
      throw std::runtime_error("has a JSON object with more than 1000 members");
    return true;
  };
  Json json;
  try {
    json = Json::parse(text, check);
  } catch (const typename Json::exception&) {
  }
  if (!json.is_object()) throw std::runtime_error("is no JSON object");
  return json;
}

template <typename Json>
int64_t count_of(const Json& number) {
  if (!number.is_number_unsigned() || number.template get<uint64_t>() > INT64_MAX)
    throw std::runtime_error("has " + number.dump() +
                             " where a number of steps, bytes or elements goes");
  return number.template get<int64_t>();
}

template <typename Json>
std::vector<int64_t> counts_of(const Json& array) {
  std::vector<int64_t> counts;
  for (const Json& number : array)
    counts.push_back(count_of(number));
  return counts;
}

std::optional<int64_t> product(const std::vector<int64_t>& sizes) {
  int64_t numel = 1;
  for (const int64_t size : sizes)
    if (__builtin_mul_overflow(numel, size, &numel)) return std::nullopt;
  return numel;
}

template nlohmann::json read_json_object(std::string_view);
template nlohmann::ordered_json read_json_object(std::string_view);
template int64_t count_of(const nlohmann::json&);
template int64_t count_of(const nlohmann::ordered_json&);
template std::vector<int64_t> counts_of(const nlohmann::json&);
template std::vector<int64_t> counts_of(const nlohmann::ordered_json&);

}  // namespace fsdp
