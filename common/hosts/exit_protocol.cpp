#include <base/whole_file.h>
#include <comm/call_rings.h>
#include <comm/ledger.h>
#include <hosts/exit_protocol.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

namespace fsdp {
namespace {

using namespace std::chrono_literals;

// The time limit, 2 s, of each request to the store after a rank has ended.
constexpr auto kExitTimeout = 2s;
// If a rank failed because another rank was missing, the process of the failed rank waits 1 s for
// the process of the missing rank to print the error.
constexpr auto kCauseTimeout = 1s;
// How often the process of rank 0 raises the counter kCaller in the store, which shows that the
// process is alive.
constexpr auto kCallerCounts = 250ms;
constexpr std::chrono::hours kAnyTime{24 * 365};

const std::string kFailed = "failed", kIsTold = "told", kTeller = "teller", kEnds = "ends",
                  kEnded = "ended", kAllEnded = "all ended", kOver = "over", kRoll = "roll",
                  kCaller = "caller", kDecision = "decision", kSparesTold = "spares told";

// Returns the report of how a rank has ended. It is appended to the reports of other ranks in the
// store. It has a line with the rank, its status and the number of bytes of `pages`, and then
// `pages`, the last calls of the rank.
std::string framed(int rank, RankStatus status, const std::string& pages) {
  std::ostringstream line;
  line << rank << ' ' << static_cast<int>(status.kind) << ' ' << status.number << ' '
       << pages.size() << '\n';
  return line.str() + pages;
}

// Writes the reports `ends` of ranks on other hosts into the CallRings, as if those ranks shared
// the memory of this host. A rank without a report gets the status `silent`.
void enter(const std::string& ends, const Hosts& hosts, CallRings& rings) {
  std::vector<bool> has_said(hosts.of_rank.size());
  for (size_t at = 0; at < ends.size();) {
    const size_t end = ends.find('\n', at);
    if (end == std::string::npos) break;
    std::istringstream line(ends.substr(at, end - at));
    int rank = -1, kind = 0, number = 0;
    size_t bytes = 0;
    line >> rank >> kind >> number >> bytes;
    at = end + 1 + bytes;
    if (!line || rank < 0 || static_cast<size_t>(rank) >= has_said.size() || at > ends.size())
      break;
    has_said[static_cast<size_t>(rank)] = true;
    if (hosts.of_rank[static_cast<size_t>(rank)] == hosts.this_host()) continue;
    rings.set_status(rank, {static_cast<RankStatus::Kind>(kind), number});
    rings.deserialize(rank, ends.substr(end + 1, bytes));
  }
  for (size_t rank = 0; rank < has_said.size(); ++rank)
    if (!has_said[rank] && hosts.of_rank[rank] != hosts.this_host())
      rings.set_status(static_cast<int>(rank), {RankStatus::Kind::silent, 0});
}

// Returns the rank that kept its group from completing call `sequence`: a rank that ended before it
// issued the call and was not waiting for another rank itself; else a rank that has not issued the
// call; else nothing.
std::optional<int> culprit(const CallRings& rings, int self, uint64_t sequence) {
  const auto first = [&](const auto& is_it) -> std::optional<int> {
    for (int rank = 0; rank < rings.group().size; ++rank)
      if (rank != self && is_it(rank)) return rank;
    return std::nullopt;
  };
  const auto gone = first([&](int rank) {
    const RankStatus status = rings.status(rank);
    return status.gone() && rings.published(rank) <= sequence && !rings.lost(rank);
  });
  return gone ? gone : first([&](int rank) { return rings.published(rank) <= sequence; });
}

// For the process of rank 0: waits for the decision on the run for at most `limit`, and meanwhile
// raises the counter kCaller in the store, which shows that this process is alive. Returns whether
// there is a decision.
bool decision_comes_to_caller(StoreRequests& requests, std::chrono::milliseconds limit) {
  const auto deadline = BlockedSignals::Time::clock::now() + limit;
  for (;;) {
    requests.add(kCaller, 1);
    if (requests.comes(kDecision, kCallerCounts)) return true;
    if (BlockedSignals::Time::clock::now() >= deadline) return false;
  }
}

// For the process of any rank but 0: waits for the decision on the run for at most `limit`. The
// process of rank 0, which decides, may be lost too: the wait ends if that process does not raise
// the counter kCaller in the store for kToAnswer. Returns whether there is a decision.
bool caller_decides(StoreRequests& requests, std::chrono::milliseconds limit) {
  const auto deadline = BlockedSignals::Time::clock::now() + limit;
  for (int64_t counted = 0; BlockedSignals::Time::clock::now() < deadline;) {
    if (requests.comes(kDecision, kToAnswer)) return true;
    const int64_t now = requests.add(kCaller, 0);
    if (now == counted) return false;
    counted = now;
  }
  return false;
}

// Waits until `spares` spare ranks, which the run does not use, have returned from all_succeed(),
// for at most kExitTimeout.
void wait_for_spares(StoreRequests& requests, int spares) {
  const auto deadline = BlockedSignals::Time::clock::now() + kExitTimeout;
  while (requests.add(kSparesTold, 0) < spares && BlockedSignals::Time::clock::now() < deadline)
    std::this_thread::sleep_for(10ms);
}

// Waits for the text that the request of `client` returns, and returns it. Returns nothing if the
// store can't be reached, or if a signal that ends this process arrives first.
std::optional<std::string> answer_of(StoreClientProcess& client, BlockedSignals& signals) {
  try {
    for (;;) {
      if (auto answer = client.answer_so_far()) return answer;
      const int signal = signals.next(BlockedSignals::Time::clock::now() + ExitProtocol::kLook);
      if (signal != 0 && signal != SIGCHLD && signal != SIGCONT && !signals.passes_on(signal))
        return std::nullopt;
    }
  } catch (const std::runtime_error&) {
    return std::nullopt;
  }
}

std::string with_host(const Hosts& hosts, int rank, const std::string& text) {
  const std::string who = "rank " + std::to_string(rank);
  const bool begins = text.rfind(who, 0) == 0;
  const std::string named = who + " on " + hosts.name_of(rank);
  const bool needs_name = begins && text.rfind(named, 0) != 0;
  return (needs_name ? named + text.substr(who.size()) : text) + "\n  " + hosts.text();
}

}  // namespace

std::unique_ptr<ExitProtocol> ExitProtocol::listen(const JoinedRun& joined, bool goes_on) {
  if (!joined.hosts->several() && joined.hosts->self.spares == 0) return nullptr;
  return std::unique_ptr<ExitProtocol>(new ExitProtocol(joined, goes_on));
}

ExitProtocol::ExitProtocol(const JoinedRun& joined, bool goes_on)
    : hosts_(joined.hosts),
      shared_(joined.shared),
      listener_(joined.hosts->self, [this, goes_on](StoreRequests& requests) {
        requests.comes(kFailed, kAnyTime);
        if (!goes_on) return std::string();
        requests.append(kRoll, std::to_string(hosts_->self.rank) + " here\n");
        const auto time = time_to_end(shared_->longest_wait());
        const bool given = hosts_->self.rank == 0 ? decision_comes_to_caller(requests, time)
                                                  : requests.comes(kDecision, time);
        if (given &&
            Decision::of(requests.get(kDecision, "no decision")).kind == Decision::Kind::done)
          requests.comes(kAllEnded, time);
        return std::string();
      }) {}

bool ExitProtocol::others_failed() {
  try {
    return shared_->one_has_failed() || listener_.answer_so_far().has_value();
  } catch (const std::runtime_error&) {
    return true;
  }
}

std::string ExitProtocol::report_exit(const RankExit& exit) {
  if (exit.ended_by_launcher && shared_->one_has_failed())
    return "";  // another process of this host prints the error
  LaunchedRank self = hosts_->self;
  self.timeout = kExitTimeout;
  CallRings rings(shared_->call_rings(), Group::world(self.world_size));
  RankStatus status = exit.status();
  if (exit.ended_by_launcher) status = {};
  if (exit.stopped_by != 0) status = {RankStatus::Kind::stopped, exit.stopped_by};
  const bool failed = !exit.ok() && !exit.ended_by_launcher;
  const bool lost = rings.lost(exit.rank).has_value() && exit.signal == 0;
  if (failed) rings.set_status(exit.rank, status);  // shows the failure to the ranks of this host
  const std::string end = framed(exit.rank, status, rings.serialize(exit.rank));
  StoreClientProcess client(self, [&](StoreRequests& requests) -> std::string {
    requests.append(kEnds, end);
    if (failed) requests.set(kFailed, "1");
    std::string ends;
    if (failed && !(lost && requests.comes(kIsTold, kCauseTimeout)) &&
        requests.add(kTeller, 1) == 1) {
      ends = requests.get(kEnds, "no end of a rank");
      requests.set(kIsTold, "1");
    }
    try {
      const bool all_ended = requests.add(kEnded, 1) == self.world_size;
      if (all_ended || failed) requests.set(kOver, "1");
      if (all_ended) requests.set(kAllEnded, "1");
    } catch (const std::runtime_error&) {
      return ends;  // not a failure: if all ranks have ended, the store may have ended too
    }
    return ends;
  });
  try {
    const std::string ends = client.answer();
    if (ends.empty()) return "";
    return with_host(*hosts_, exit.rank, lost ? story_of_the_lost(ends, exit) : exit.text());
  } catch (const std::runtime_error&) {
    if (exit.ok() || !shared_->first_to_fail()) return "";
    return of_one_host(exit);
  }
}

Decision ExitProtocol::decide_survivors(const RankExit& exit,
                                        const std::vector<int64_t>& saved_steps,
                                        const AfterLoss& after_loss, BlockedSignals& signals,
                                        const StoreClientProcess::Log& log) {
  CallRings rings(shared_->call_rings(), Group::world(hosts_->self.world_size));
  // Shows the failure of this process's rank to the other ranks of this host.
  if (!exit.ok()) rings.set_status(exit.rank, exit.status());
  const bool lost = rings.lost(exit.rank).has_value() && exit.signal == 0 && !exit.ok();
  std::string word = exit.ok() ? "done" : "out";
  if (lost && !saved_steps.empty())
    word = "left " + std::to_string(saved_steps.front()) + ' ' + std::to_string(saved_steps.back());
  LaunchedRank self = hosts_->self;
  self.timeout = kExitTimeout;
  StoreClientProcess client(self, [&](StoreRequests& requests) {
    return decide_survivors(requests, exit, word, after_loss);
  });
  const auto answer = answer_of(client, signals);
  if (!answer) return {};
  const size_t middle = answer->find('\n');
  const std::string ends = answer->substr(middle + 1);
  if (!ends.empty()) log(story_of_a_host(ends, exit));
  return Decision::of(answer->substr(0, middle));
}

// Returns the decision on the run, a newline and, if this process must print which host was lost,
// the reports of all ranks.
std::string ExitProtocol::decide_survivors(StoreRequests& requests, const RankExit& exit,
                                           const std::string& word,
                                           const AfterLoss& after_loss) const {
  const CallRings rings(shared_->call_rings(), Group::world(hosts_->self.world_size));
  const auto limit = shared_->longest_wait();
  const RankStatus status = word.rfind("left", 0) == 0 ? RankStatus() : exit.status();
  requests.append(kEnds, framed(exit.rank, status, rings.serialize(exit.rank)));
  requests.append(kRoll, std::to_string(exit.rank) + ' ' + word + '\n');
  if (!exit.ok()) requests.set(kFailed, "1");
  if (exit.rank != 0) {
    if (word == "done") return Decision{.kind = Decision::Kind::done}.text() + '\n';
    const bool given = word != "out" && caller_decides(requests, 2 * time_to_end(limit));
    return (given ? requests.get(kDecision, "no decision") : Decision().text()) + '\n';
  }
  const auto began = BlockedSignals::Time::clock::now();
  std::optional<Decision> found;
  while (!found) {
    const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(
        BlockedSignals::Time::clock::now() - began);
    requests.add(kCaller, 1);
    found = decision(requests.get(kRoll, "no word of a rank"), *hosts_, since, limit, after_loss);
    if (!found) std::this_thread::sleep_for(50ms);
  }
  requests.set(kDecision, found->text());
  const bool tells =
      found->kind != Decision::Kind::fail && !exit.ok() && requests.add(kTeller, 1) == 1;
  if (tells) requests.set(kIsTold, "1");
  return found->text() + '\n' + (tells ? requests.get(kEnds, "no end of a rank") : "");
}

std::string ExitProtocol::story_of_the_lost(const std::string& ends, const RankExit& exit) const {
  CallRings world(shared_->call_rings(), Group::world(hosts_->self.world_size));
  enter(ends, *hosts_, world);
  const auto lost = *world.lost(exit.rank);
  const CallRings rings(shared_->call_rings(), lost.group, lost.set);
  const int self = lost.group.rank_of(exit.rank);
  if (!lost.sequence) {
    const auto silent = world.find_ended_rank(0ms);
    if (!silent) return exit.text();
    return exit.text() + ": rank " + std::to_string(*silent) + ' ' + world.status(*silent).text();
  }
  const auto rank = culprit(rings, self, *lost.sequence);
  if (!rank) return exit.text();
  return missing_rank(rings, self, " is not complete", *rank, *lost.sequence);
}

// Returns the text that reports the lost host if the run continues, or is done, without it.
std::string ExitProtocol::story_of_a_host(const std::string& ends, const RankExit& exit) const {
  CallRings world(shared_->call_rings(), Group::world(hosts_->self.world_size));
  enter(ends, *hosts_, world);
  std::optional<int> lost;
  for (int rank = 0; rank < hosts_->self.world_size; ++rank) {
    const auto kind = world.status(rank).kind;
    const bool elsewhere = hosts_->name_of(rank) != hosts_->name_of(exit.rank);
    const bool is_first = !lost && kind == RankStatus::Kind::silent;
    if (elsewhere && (is_first || kind == RankStatus::Kind::killed)) lost = rank;
  }
  const int rank = lost.value_or(exit.rank);
  const std::string last = world.last_call(rank);
  return hosts_->name_of(rank) + " is lost: rank " + std::to_string(rank) + ' ' +
         world.status(rank).text() + (last.empty() ? "" : " after collective " + last) +
         "; the last call of rank " + std::to_string(exit.rank) + " was " + exit.last_call +
         "\n  " + hosts_->text();
}

std::string ExitProtocol::of_one_host(const RankExit& exit) const {
  const LaunchedRank& self = hosts_->self;
  const std::string store = self.host + ':' + std::to_string(self.port);
  std::string text = hosts_->name_of(exit.rank) + " can't reach the store at " + store +
                     (self.launcher_hosts_store ? "" : " on " + hosts_->names[0]) +
                     ": that host is down, or the network to it is cut";
  if (exit.ended_by_launcher) {
    text += "; the last call of rank " + std::to_string(exit.rank) + " was " + exit.last_call;
  } else {
    text = exit.text() + '\n' + text;
  }
  return with_host(*hosts_, exit.rank, text);
}

void ExitProtocol::wait_for_all(std::chrono::milliseconds limit, int spares,
                                BlockedSignals& signals) {
  StoreClientProcess client(hosts_->self, [&](StoreRequests& requests) {
    requests.comes(kAllEnded, limit);
    wait_for_spares(requests, spares);
    return std::string();
  });
  answer_of(client, signals);
}

bool ExitProtocol::all_succeed(const LaunchedRank& self) {
  return StoreClientProcess(self,
                            [&](StoreRequests& requests) -> std::string {
                              requests.comes(kOver, kAnyTime);
                              const bool failed = requests.comes(kFailed, 1ms);
                              requests.add(kSparesTold, 1);
                              return failed ? "failed" : "";
                            })
      .answer()
      .empty();
}

LaunchedRank ExitProtocol::of_spares(LaunchedRank self) {
  self.group += "/spares";
  return self;
}

void ExitProtocol::end_spares(const LaunchedRank& self, int spares, bool succeeded) {
  LaunchedRank brief = of_spares(self);
  brief.timeout = kExitTimeout;
  try {
    StoreClientProcess(brief, [&](StoreRequests& requests) {
      if (!succeeded) requests.set(kFailed, "1");
      requests.set(kOver, "1");
      wait_for_spares(requests, spares);
      return std::string();
    }).answer();
  } catch (const std::runtime_error&) {
    return;  // if the store is gone, no spare rank waits any more
  }
}

void write_error_file(const std::string& text) {
  const char* file = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (file == nullptr) return;
  const nlohmann::json content{
      {"message",
       {{"message", text}, {"extraInfo", {{"timestamp", std::to_string(std::time(nullptr))}}}}}};
  try {
    write_whole_file(file, content.dump());
  } catch (const std::exception&) {
    return;  // if the file TORCHELASTIC_ERROR_FILE cannot be written, stderr still has the text
  }
}

}  // namespace fsdp
