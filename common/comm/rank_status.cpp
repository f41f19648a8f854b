#include <comm/rank_status.h>

#include <cstring>

namespace fsdp {

std::string RankStatus::text() const {
  switch (kind) {
    case Kind::running:
      return "";
    case Kind::stopped:
      return "was stopped by " + signal_text(number);
    case Kind::ended:
      return "has ended with status " + std::to_string(number);
    case Kind::killed:
      return "was killed by " + signal_text(number);
    case Kind::vanished:
      return "has vanished (its process is gone)";
    case Kind::silent:
      return "does not answer (its host is down, or cut off)";
  }
  return "";
}

std::string signal_text(int signal) {
  return "signal " + std::to_string(signal) + " (" + strsignal(signal) + ')';
}

}  // namespace fsdp
