#include <base/processes.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <system_error>

namespace fsdp {
namespace {

// Returns whether the process or thread that the folder `task` of /proc describes is ending or
// gone. /proc may list a thread for a moment after its end, and a process until its parent has
// waited for it.
bool is_ending(const std::filesystem::path& task) {
  // PF_EXITING, a flag that the kernel sets when a process or thread is ending.
  constexpr unsigned long kExiting = 4;
  std::string line;
  if (!std::getline(std::ifstream(task / "stat"), line)) return true;
  // The line of /proc/PID/stat has the name of the process in parentheses. The name may contain any
  // character, so only the fields after the last parenthesis are read.
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  std::string state, parent, group, session, terminal, foreground;
  unsigned long flags = 0;
  fields >> state >> parent >> group >> session >> terminal >> foreground >> flags;
  return (flags & kExiting) != 0;
}

}  // namespace

void end_with(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // If `parent` ended before prctl() was called, the system sends no signal, so this process ends
  // itself.
  if (getppid() != parent) _exit(1);
}

bool process_runs(pid_t process) {
  return !is_ending("/proc/" + std::to_string(process));
}

void require_one_thread(const std::string& who) {
  int threads = 0;
  std::string names;
  // If the system has no /proc, `unknown` receives the error, the loop counts no thread, and
  // require_one_thread() throws nothing.
  std::error_code unknown;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", unknown)) {
    if (is_ending(task.path())) continue;
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    names += (++threads == 1 ? "" : ", ") + name;
  }
  if (threads <= 1) return;
  throw std::logic_error(
      who + ": this process has " + std::to_string(threads) +
      " threads already, and ranks that are forked from it would wait for ever "
      "for locks that the others hold; run what uses torch (data, models) inside "
      "the ranks, and switch off threads of an allocator (jemalloc: "
      "MALLOC_CONF=background_thread:false). The threads are called: " +
      names);
}

}  // namespace fsdp
