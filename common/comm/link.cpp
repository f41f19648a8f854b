#include <comm/link.h>

#include <map>
#include <regex>
#include <stdexcept>

namespace fsdp {

int64_t Link::time(Operation operation, int64_t bytes, int world_size) const {
  const int64_t hops = (world_size - 1) * (operation == Operation::all_reduce ? 2 : 1);
  const double transfer = static_cast<double>(bytes) / bytes_per_second * 1e9;
  return hops * latency.count() + static_cast<int64_t>(transfer);
}

Link parse_link(const std::string& text) {
  static const std::regex kPattern(
      R"(([0-9]{1,9}(?:\.[0-9]{1,9})?)(ns|us|ms|s),([0-9]{1,9}(?:\.[0-9]{1,9})?)([kMG])B/s)");
  static const std::map<std::string, double> kUnits{
      {"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}};
  std::smatch match;
  if (!std::regex_match(text, match, kPattern)) {
    throw std::invalid_argument("link '" + text +
                                "': expected a latency and a bandwidth, such as 200us,1GB/s");
  }
  const double latency = std::stod(match[1]) * kUnits.at(match[2]);
  const double bandwidth = std::stod(match[3]) * kUnits.at(match[4]);
  // Refuses extreme values, so that the nanoseconds of Link::time() do not overflow.
  if (bandwidth < 1e3 || latency > 60e9)
    throw std::invalid_argument("link '" + text +
                                "': the latency may be at most 60s, the bandwidth at least 1kB/s");
  return {std::chrono::nanoseconds(static_cast<int64_t>(latency)), bandwidth};
}

}  // namespace fsdp
