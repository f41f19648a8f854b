#include <launch/rank_exit.h>
#include <signal.h>

namespace fsdp {

RankStatus RankExit::status() const {
  if (signal != 0) return {RankStatus::Kind::killed, signal};
  return {RankStatus::Kind::ended, exit_code};
}

std::string RankExit::text() const {
  std::string who = "rank " + std::to_string(rank);
  std::string where = last_call.empty() ? "" : " after collective " + last_call;
  if (stopped_by == SIGTTIN && !ended_by_launcher) {
    return who + " reads from the terminal" + where +
           ", and was stopped by signal 21: read before start(), or from a file or a pipe";
  }
  if (stopped_by != 0 && !ended_by_launcher) {
    return who + " was stopped by " + signal_text(stopped_by) + where +
           ", and was not continued (SIGCONT) within the time limit";
  }
  if (ended_by_launcher) return who + " was stopped" + where;
  if (signal != 0 && message.empty()) return who + ' ' + status().text() + where;
  if (ok()) return who + " succeeded";
  if (message.empty()) return who + " ended with exit status " + std::to_string(exit_code) + where;
  const std::string end = signal == 0 ? "" : "; it " + status().text();
  return (message.rfind(who, 0) == 0 ? message : who + " failed: " + message) + end;
}

}  // namespace fsdp
