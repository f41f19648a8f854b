#include <arpa/inet.h>
#include <base/memory_file.h>
#include <base/torch.h>
#include <fcntl.h>
#include <hosts/start.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <cstdlib>
#include <regex>
#include <stdexcept>
#include <system_error>

#include "fork_process.h"
#include "torchrun.h"

namespace fsdp {
namespace {

void require(bool condition, const char* what) {
  if (!condition) throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

Variables torchrun_variables(int rank, int world_size, uint16_t port) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(world_size)},
          {"LOCAL_WORLD_SIZE", std::to_string(world_size)},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(port)},
          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
          {"TORCHELASTIC_RUN_ID", "none"},
          {"TORCHELASTIC_RESTART_COUNT", "0"}};
}

// The store lives in a process of its own, because torch starts threads for it, and then the caller
// could not fork ranks any more.
HostedStore::HostedStore() {
  int ends[2];
  require(pipe(ends) == 0, "pipe");
  process_ = fork_process([&]() -> int {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    c10d::TCPStoreOptions options;
    options.port = 0;
    options.isServer = true;
    options.waitWorkers = false;
    const c10d::TCPStore server("127.0.0.1", options);
    const uint16_t port = server.getPort();
    if (write(ends[1], &port, sizeof port) != sizeof port) return 1;
    alarm(0);  // cancels the alarm of fork_process(), so that the store lasts as long as the test
    return pause();
  });
  close(ends[1]);
  const bool complete = read(ends[0], &port_, sizeof port_) == sizeof port_;
  close(ends[0]);
  require(complete, "the process with the store has died");
}

HostedStore::~HostedStore() {
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
}

ReservedPort::ReservedPort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  require(socket_ >= 0, "socket");
  const int yes = 1;  // while this socket does not listen, another socket may bind the port too
  setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t length = sizeof address;
  auto* general = reinterpret_cast<sockaddr*>(&address);
  require(bind(socket_, general, length) == 0, "bind");
  require(getsockname(socket_, general, &length) == 0, "getsockname");
  number_ = ntohs(address.sin_port);
}

ReservedPort::~ReservedPort() {
  close(socket_);
}

namespace {

using Body = std::function<int(const RankContext&)>;

// Runs in the process of a rank: calls start() in `environment`, with stderr redirected to `said`.
[[noreturn]] void run_rank(const Variables& environment, int world_size, const Body& body,
                           int said) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // A shell makes its background processes ignore SIGINT, and child processes inherit this.
  signal(SIGINT, SIG_DFL);
  alarm(30);
  dup2(said, STDERR_FILENO);
  const SetVariables set(environment);
  const int code = start(world_size, body, "program");
  std::fflush(nullptr);
  _exit(code);
}

}  // namespace

Ended torchrun(int world_size, uint16_t port, const Body& body, const Variables& changes,
               OfFailure others) {
  const OpenFile said = memory_file("said");
  require(fcntl(said.descriptor, F_SETFL, O_APPEND) == 0, "fcntl");
  std::fflush(nullptr);
  std::vector<pid_t> processes;
  for (int rank = 0; rank < world_size; ++rank) {
    Variables environment = torchrun_variables(rank, world_size, port);
    for (const auto& [name, value] : changes)
      environment[name] = value;
    const pid_t process = fork();
    require(process >= 0, "fork");
    if (process == 0) {
      setpgid(0, processes.empty() ? 0 : processes[0]);
      run_rank(environment, world_size, body, said.descriptor);
    }
    processes.push_back(process);
    setpgid(process, processes[0]);
  }

  Ended ended{std::vector<int>(world_size), ""};
  for (int left = world_size; left > 0; --left) {
    int status = 0;
    const pid_t process = waitpid(-processes[0], &status, 0);
    require(process > 0, "waitpid");
    const auto rank = std::find(processes.begin(), processes.end(), process) - processes.begin();
    ended.statuses[static_cast<size_t>(rank)] = status;
    if (status != 0 && others == OfFailure::told) kill(-processes[0], SIGTERM);
  }
  ended.said = std::regex_replace(content_of(said, "what ranks print"),
                                  std::regex("program: rank [0-9]+ waits: .*\n"), "");
  return ended;
}

}  // namespace fsdp
