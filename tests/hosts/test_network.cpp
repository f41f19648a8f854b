#include <common/shared_words.h>
#include <gtest/gtest.h>
#include <hosts/rendezvous.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <system_error>

#include "network.h"

namespace fsdp {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kMoment(300), kLong(30'000);

class EmulatedHost : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = Network::unavailable(); !reason.empty()) GTEST_SKIP() << reason;
    // If the function that runs on one host has failed, the function on the other host may wait for
    // it for ever. Then this alarm ends the test, and all its hosts end too.
    alarm(60);
  }
  void TearDown() override { alarm(0); }
};
using NetworkEmulator = EmulatedHost;

// Returns a socket that listens on a free port, and the port.
std::pair<int, uint16_t> listen_anywhere() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in own{AF_INET, 0, {}, {}};
  socklen_t size = sizeof own;
  if (listen(socket, 1) != 0) _exit(9);
  getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size);
  return {socket, ntohs(own.sin_port)};
}

// Returns a socket that is connected to this port; -1 if no process listens there.
int connect_to(const std::string& name, int port) {
  const auto found = addresses_of(name, static_cast<uint16_t>(port));
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  if (connect(socket, found->ai_addr, found->ai_addrlen) == 0) return socket;
  close(socket);
  return -1;
}

// Receives `bytes` bytes. Returns fewer if the connection ends before.
std::string receive(int socket, size_t bytes = 1) {
  std::string text(bytes, ' ');
  const ssize_t came = recv(socket, text.data(), bytes, MSG_WAITALL);
  return text.substr(0, came > 0 ? came : 0);
}

bool send_all(int socket, const std::string& text) {
  return send(socket, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
}

// Waits until `file` can be read, because it has a byte or has ended. Returns false after `within`.
bool comes(int file, milliseconds within) {
  pollfd reads{file, POLLIN, 0};
  return poll(&reads, 1, static_cast<int>(within.count())) == 1;
}

int status_of(pid_t process) {
  int status = -1;
  waitpid(process, &status, 0);
  return status;
}

using Talk = std::function<bool(int socket)>;

struct Pair {
  pid_t first, second;

  void expect_success() const {
    EXPECT_EQ(status_of(first), 0);
    EXPECT_EQ(status_of(second), 0);
  }
};

// Opens a TCP connection from host 1 to host 0. Runs `first` on host 0 and `second` on host 1, and
// gives each function its socket of the connection. Returns the two processes.
Pair connect_hosts(Network& hosts, const Talk& first, const Talk& second) {
  SharedWords port;
  const pid_t accepts = hosts.start(0, [&] {
    const auto [socket, number] = listen_anywhere();
    port[0] = number;
    return first(accept(socket, nullptr, nullptr)) ? 0 : 1;
  });
  while (port[0] == 0)
    sched_yield();
  return {accepts, hosts.start(1, [&] { return second(connect_to("host-a", port[0])) ? 0 : 1; })};
}

TEST_F(NetworkEmulator, a_tcp_stream_over_the_emulated_network_is_delayed_but_arrives_whole) {
  std::string text;
  for (int i = 0; text.size() < 8 << 20; ++i)
    text += std::to_string(i);
  Network hosts(2, {.delay = milliseconds(5), .loss = 0.01});
  const auto receives = [&](int socket) {
    const auto begin = std::chrono::steady_clock::now();
    const bool answered = send_all(socket, "a") && receive(socket) == "b";
    const auto passed = std::chrono::steady_clock::now() - begin;
    return answered && passed >= milliseconds(10) && receive(socket, text.size() + 1) == text;
  };
  const auto sends = [&](int socket) {
    const bool sent = receive(socket) == "a" && send_all(socket, "b") && send_all(socket, text);
    shutdown(socket, SHUT_WR);
    receive(socket);  // returns when the other host has received all and closed the connection
    tcp_info info{};
    socklen_t size = sizeof info;
    getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size);
    return sent && info.tcpi_total_retrans > 0;
  };
  connect_hosts(hosts, receives, sends).expect_success();
}

TEST_F(EmulatedHost, an_emulated_host_has_its_own_ports_processes_and_name) {
  const auto [socket, port] = listen_anywhere();
  const int machines = port;
  EXPECT_GE(connect_to("127.0.0.1", machines), 0);
  const auto finds_itself = [] {
    return std::filesystem::read_symlink("/proc/self") == std::to_string(getpid());
  };
  Network hosts(2);
  const pid_t process = hosts.start(1, [&] {
    char name[65];
    gethostname(name, sizeof name);
    const bool own = name == Network::name(1) && finds_itself();
    return own && connect_to("127.0.0.1", machines) < 0 ? 3 : 0;
  });
  EXPECT_EQ(status_of(process), 3 << 8);
  EXPECT_EQ(WTERMSIG(status_of(hosts.start(1, [] { return raise(SIGTERM); }))), SIGTERM);
  const pid_t on_no_host = fork();
  if (on_no_host == 0) _exit(finds_itself() ? 0 : 1);
  EXPECT_EQ(status_of(on_no_host), 0);
  close(socket);
}

// Never returns. Also forks a process that leads a session of its own and that no process waits
// for. Each of the two processes adds 1 to running[0].
bool fork_and_stay(SharedWords& running) {
  if (fork() == 0) setsid();
  ++running[0];
  for (;;)
    pause();
}

TEST_F(EmulatedHost, ending_an_emulated_host_kills_its_processes_without_closing_connections) {
  SharedWords running, ended;
  int held[2];
  Network hosts(2);
  ASSERT_EQ(pipe(held), 0);
  const auto listens = [&](int socket) {
    close(held[1]);
    wait_until(ended[0], 1);
    return !comes(socket, kMoment);
  };
  const Pair pair = connect_hosts(hosts, listens, [&](int) { return fork_and_stay(running); });
  wait_until(running[0], 2);
  close(held[1]);
  hosts.end(1);
  // The pipe ends because no process holds its other end any more.
  EXPECT_TRUE(comes(held[0], kLong));
  ended[0] = 1;
  EXPECT_EQ(WTERMSIG(status_of(pair.second)), SIGKILL);
  EXPECT_EQ(status_of(pair.first), 0);
  EXPECT_THROW(hosts.start(1, [] { return 0; }), std::system_error);
}

TEST_F(EmulatedHost, an_emulated_host_ends_with_the_process_that_created_it) {
  SharedWords running;
  int held[2];
  ASSERT_EQ(pipe(held), 0);
  const pid_t maker = fork();
  if (maker == 0) {
    Network hosts(1);
    hosts.start(0, [&] { return fork_and_stay(running); });
    for (;;)
      pause();
  }
  close(held[1]);
  wait_until(running[0], 2);
  kill(maker, SIGKILL);
  EXPECT_TRUE(comes(held[0], kLong));
  EXPECT_EQ(WTERMSIG(status_of(maker)), SIGKILL);
}

}  // namespace
}  // namespace fsdp
