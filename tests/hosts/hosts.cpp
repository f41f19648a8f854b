#include "hosts.h"

#include <base/processes.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <system_error>

#include "wire.h"

namespace fsdp {
namespace {

void require(bool condition, const std::string& what) {
  if (!condition) throw std::system_error(errno, std::generic_category(), what);
}

int handle_of(pid_t process) {
  return static_cast<int>(syscall(SYS_pidfd_open, process, 0));
}

// What names a process's pid namespace; 0 if there is no such process.
ino_t pid_namespace(const std::filesystem::path& process) {
  struct stat found {};
  return stat((process / "ns/pid").c_str(), &found) == 0 ? found.st_ino : 0;
}

// Waits for the end of each process there but the first, which ends after somebody has waited for
// all others. Whether there was one.
bool wait_for_others(ino_t space, pid_t first) {
  bool any = false;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const pid_t process = std::atoi(entry.path().filename().c_str());
    if (process <= 0 || process == first || pid_namespace(entry.path()) != space) continue;
    pollfd end{handle_of(process), POLLIN, 0};
    if (end.fd < 0) continue;
    any |= poll(&end, 1, 0) == 0;
    poll(&end, 1, -1);
    close(end.fd);
  }
  return any;
}

// In a process that has been forked into the pid namespace of `init`.
int run_on(int init, const std::string& folder, const std::function<int()>& body) {
  try {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // if it comes too late, `init` ends, and with it all others
    require(setns(init, CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC) == 0, "setns");
    require(chdir(folder.c_str()) == 0, folder);
    setsid();
    const int code = body();
    std::fflush(nullptr);
    return code;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace

std::string Hosts::unavailable() {
  try {
    Hosts hosts(1);
    const pid_t process = hosts.start(0, [] { return 0; });
    int status = 1;
    waitpid(process, &status, 0);
    return status == 0 ? "" : "no process can enter a host";
  } catch (const std::runtime_error& error) {
    return std::string("no hosts can be made: ") + error.what();
  }
}

Hosts::Hosts(int hosts, const WireOptions& options) {
  require_one_thread("Hosts");
  if (hosts < 1 || hosts > kMostHosts) throw std::runtime_error("1 to 26 hosts");
  void* shared = mmap(nullptr, sizeof(HostState) * kMostHosts, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int told[2];
  require(shared != MAP_FAILED && pipe(told) == 0, "Hosts");
  states_ = static_cast<HostState*>(shared);
  std::fflush(nullptr);
  const pid_t self = getpid();
  wire_ = fork();
  require(wire_ >= 0, "fork");
  if (wire_ == 0) {
    end_with(self);
    run_wire(states_, hosts, options, told[1]);
  }
  close(told[1]);
  std::string text;
  for (char letter; read(told[0], &letter, 1) == 1;)
    text += letter;
  close(told[0]);
  for (int host = 0; host < hosts; ++host)
    inits_.push_back(handle_of(states_[host].init));
  if (text == std::string(inits_.size(), '.')) return;
  stop();
  throw std::runtime_error(text);
}

void Hosts::stop() {
  for (int host = 0; host < static_cast<int>(inits_.size()); ++host) {
    end(host);
    close(inits_[host]);
  }
  kill(wire_, SIGKILL);
  waitpid(wire_, nullptr, 0);
  munmap(states_, sizeof(HostState) * kMostHosts);
}

Hosts::~Hosts() {
  stop();
}

std::string Hosts::address(int host) {
  return "10.77.0." + std::to_string(host + 1);
}

std::string Hosts::name(int host) {
  return std::string("host-") + static_cast<char>('a' + host);
}

pid_t Hosts::start(int host, const std::function<int()>& body) {
  const int init = inits_.at(static_cast<size_t>(host));
  const std::string folder = std::filesystem::current_path();
  const int own = handle_of(getpid());
  std::fflush(nullptr);
  const bool enters = setns(init, CLONE_NEWPID) == 0;  // decides where children begin
  const pid_t process = enters ? fork() : -1;
  const int error = errno;
  if (process == 0) _exit(run_on(init, folder, body));
  setns(own, CLONE_NEWPID);
  close(own);
  errno = error;
  require(process > 0, "no process can be started on " + name(host));
  return process;
}

void Hosts::cut(int host) {
  states_[host].turns |= 1;
}

void Hosts::mend(int host) {
  if (states_[host].turns % 2 != 0) ++states_[host].turns;
}

void Hosts::end(int host) {
  cut(host);
  const pid_t init = states_[host].init;
  const ino_t space = pid_namespace("/proc/" + std::to_string(init));
  syscall(SYS_pidfd_send_signal, inits_[static_cast<size_t>(host)], SIGKILL, nullptr, 0);
  while (space != 0 && wait_for_others(space, init)) {
  }
}

int64_t Hosts::bytes_sent(int host) const {
  return states_[host].bytes_sent;
}

}  // namespace fsdp
