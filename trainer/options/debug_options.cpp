#include <comm/communicator_options.h>
#include <command_line/command_line.h>
#include <options/choices.h>
#include <options/groups.h>

#include <regex>

namespace fsdp {
namespace {

Fault parse_fault(const std::string& text, int world) {
  static const std::regex kPattern("rank=([0-9]{1,4}),(skip|kill)=([0-9]{1,9})");
  std::smatch match;
  if (!std::regex_match(text, match, kPattern)) {
    throw UsageError("--fault " + text + ": takes rank=R,skip=N or rank=R,kill=N");
  }
  const int rank = std::stoi(match[1]);
  if (rank >= world) {
    throw UsageError("--fault " + text + ": there are " + std::to_string(world) + " ranks");
  }
  return {match[2] == "skip" ? Fault::Kind::skip : Fault::Kind::kill, rank,
          static_cast<uint64_t>(std::stoull(match[3]))};
}

}  // namespace

void add_debug_options(CLI::App& app, TrainConfig& config, GivenDebug& given) {
  add_on_off(app, "--poison", config.debug.poison,
             "fill freed memory, unwritten memory and padding with NaN");
  app.add_option(
      "--fault", given.fault,
      "make rank R fail: rank=R,skip=N leaves out its collective number N (from 0), rank=R,kill=N "
      "kills the rank there");
}

void resolve_debug(TrainConfig& config, const GivenDebug& given) {
  if (!given.fault.empty()) config.ranks.comm.fault = parse_fault(given.fault, config.ranks.world);
}

}  // namespace fsdp
