#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <common/shared_words.h>
#include <chrono>
#include <filesystem>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "hosts.h"

namespace fsdp {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr uint16_t kPort = 5000;
constexpr milliseconds kMoment{300};  // in which nothing is to come

class Host : public testing::Test {
 protected:
  void SetUp() override {
    const std::string reason = Hosts::unavailable();
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
};
using Wire = Host;

void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

sockaddr_in at(const std::string& address, uint16_t port) {
  sockaddr_in made{AF_INET, htons(port), {}, {}};
  inet_pton(AF_INET, address.c_str(), &made.sin_addr);
  return made;
}

// A socket to which others connect.
int listener(const std::string& address, uint16_t port = kPort) {
  alarm(60);
  const int listens = socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in own = at(address, port);
  require(bind(listens, reinterpret_cast<const sockaddr*>(&own), sizeof own) == 0, "bind");
  require(listen(listens, 9) == 0, "listen");
  return listens;
}

// -1 if nobody listens there.
int connected(const std::string& address, uint16_t port = kPort) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in there = at(address, port);
  if (connect(socket, reinterpret_cast<const sockaddr*>(&there), sizeof there) == 0) return socket;
  close(socket);
  return -1;
}

char received(int socket) {
  char letter = 0;
  require(recv(socket, &letter, 1, 0) == 1, "recv");
  return letter;
}

// Neither a byte nor the end of the connection.
bool nothing_comes(int socket) {
  pollfd reads{socket, POLLIN, 0};
  return poll(&reads, 1, kMoment.count()) == 0;
}

int status_of(pid_t process) {
  int status = -1;
  waitpid(process, &status, 0);
  return status;
}

bool failed(int status) {
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

struct Pair {
  pid_t accepts, connects;

  void expect_both_succeed() const {
    EXPECT_FALSE(failed(status_of(accepts)));
    EXPECT_FALSE(failed(status_of(connects)));
  }
};

// Host 1 connects to host 0. Each body gets its end of the connection.
Pair connect_hosts(Hosts& hosts, const std::function<int(int)>& accepts,
                   const std::function<int(int)>& connects) {
  const auto listens = std::make_shared<SharedWords>();
  const pid_t first = hosts.start(0, [&] {
    const int socket = listener(Hosts::address(0));
    (*listens)[0] = 1;
    return accepts(accept(socket, nullptr, nullptr));
  });
  wait_until((*listens)[0], 1);
  return {first, hosts.start(1, [&] { return connects(connected(Hosts::address(0))); })};
}

TEST_F(Wire, delivers_a_stream_whole_though_it_loses_packets) {
  constexpr int kWords = 2 << 20;
  Hosts hosts(2, {.loss = 0.01});
  connect_hosts(
      hosts,
      [](int socket) {
        std::vector<int> words(kWords);
        const size_t bytes = words.size() * sizeof(int);
        require(recv(socket, words.data(), bytes, MSG_WAITALL) == ssize_t(bytes), "recv");
        for (int i = 0; i < kWords; ++i)
          if (words[i] != i) return 1;
        return received(socket) == 'e' ? 0 : 1;
      },
      [](int socket) {
        std::vector<int> words(kWords);
        std::iota(words.begin(), words.end(), 0);
        const size_t bytes = words.size() * sizeof(int);
        require(send(socket, words.data(), bytes, 0) == ssize_t(bytes), "send");
        send(socket, "e", 1, 0);
        char none;
        require(recv(socket, &none, 1, 0) == 0, "recv");  // the other one has it all
        tcp_info sent{};
        socklen_t size = sizeof sent;
        getsockopt(socket, IPPROTO_TCP, TCP_INFO, &sent, &size);
        return sent.tcpi_total_retrans > 0 ? 0 : 1;
      })
      .expect_both_succeed();
}

TEST_F(Wire, delays_each_way_and_limits_the_rate) {
  constexpr int kBytes = 100'000;
  Hosts hosts(2, {.delay = milliseconds(20), .bytes_per_second = 1e6});
  connect_hosts(
      hosts,
      [](int socket) {
        std::string text(kBytes, ' ');
        send(socket, "a", 1, 0);
        const auto begin = Clock::now();
        require(recv(socket, text.data(), 1, 0) == 1, "recv");
        const auto there_and_back = Clock::now() - begin;
        require(recv(socket, text.data(), kBytes, MSG_WAITALL) == kBytes, "recv");
        const auto all = Clock::now() - begin;
        return there_and_back >= milliseconds(40) && all >= milliseconds(140) ? 0 : 1;
      },
      [](int socket) {
        received(socket);
        const std::string text(kBytes + 1, 'b');
        send(socket, text.data(), text.size(), 0);
        return 0;
      })
      .expect_both_succeed();
}

TEST_F(Wire, delivers_nothing_while_a_host_is_cut_and_goes_on_when_it_is_mended) {
  Hosts hosts(2);
  for (const int cut : {0, 1}) {
    SharedWords step;
    step[0] = 0;
    const Pair pair = connect_hosts(
        hosts,
        [&](int socket) {
          const bool before = received(socket) == 'a';
          step[0] = 1;
          wait_until(step[0], 2);
          const bool nothing = nothing_comes(socket);
          step[0] = 3;
          return before && nothing && received(socket) == 'b' ? 0 : 1;
        },
        [&](int socket) {
          send(socket, "a", 1, 0);
          wait_until(step[0], 2);
          return send(socket, "b", 1, 0) == 1 ? 0 : 1;
        });
    wait_until(step[0], 1);
    hosts.cut(cut);
    step[0] = 2;
    wait_until(step[0], 3);
    hosts.mend(cut);
    pair.expect_both_succeed();
  }
}

TEST_F(Wire, counts_the_bytes_that_each_host_has_sent) {
  constexpr int kBytes = 1 << 20;
  Hosts hosts(2);
  connect_hosts(
      hosts,
      [](int socket) {
        std::string text(kBytes, ' ');
        return recv(socket, text.data(), kBytes, MSG_WAITALL) == kBytes ? 0 : 1;
      },
      [](int socket) {
        const std::string text(kBytes, 'a');
        return send(socket, text.data(), kBytes, 0) == kBytes ? 0 : 1;
      })
      .expect_both_succeed();
  EXPECT_GT(hosts.bytes_sent(1), kBytes);
  EXPECT_LT(hosts.bytes_sent(1), 2 * kBytes);  // packets may be sent twice
  EXPECT_GT(hosts.bytes_sent(0), 100);         // what TCP acknowledges
  EXPECT_LT(hosts.bytes_sent(0), kBytes / 2);
}

TEST_F(Host, reaches_no_port_of_the_machine) {
  const int socket = listener("127.0.0.1", 0);
  sockaddr_in own{};
  socklen_t size = sizeof own;
  getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size);
  const auto connects = [&] { return connected("127.0.0.1", ntohs(own.sin_port)) >= 0; };
  EXPECT_TRUE(connects());
  Hosts hosts(1);
  EXPECT_EQ(status_of(hosts.start(0, [&] { return connects() ? 1 : 0; })), 0);
  close(socket);
}

TEST_F(Host, has_a_name_that_others_know_and_a_proc_of_its_own) {
  Hosts hosts(2);
  const auto looks = [&] {
    char own[65];
    gethostname(own, sizeof own);
    addrinfo wanted{}, *found = nullptr;
    wanted.ai_family = AF_INET;
    require(getaddrinfo("host-a", nullptr, &wanted, &found) == 0, "getaddrinfo");
    const sockaddr_in first = at(Hosts::address(0), 0);
    const auto* address = reinterpret_cast<const sockaddr_in*>(found->ai_addr);
    const bool known = address->sin_addr.s_addr == first.sin_addr.s_addr;
    const bool sees_itself =
        std::filesystem::read_symlink("/proc/self") == std::to_string(getpid());
    return std::string(own) == "host-b" && known && sees_itself ? 0 : 1;
  };
  EXPECT_EQ(status_of(hosts.start(1, looks)), 0);
}

TEST_F(Host, tells_how_its_processes_ended) {
  Hosts hosts(1);
  EXPECT_EQ(WEXITSTATUS(status_of(hosts.start(0, [] { return 3; }))), 3);
  EXPECT_EQ(WTERMSIG(status_of(hosts.start(0, [] { return raise(SIGTERM); }))), SIGTERM);
}

// Processes hold the end of a pipe that is made before they are.
class Holders {
 public:
  Holders() { require(pipe(ends_) == 0, "pipe"); }
  ~Holders() { close(ends_[0]); }

  void let_go() const { close(ends_[1]); }  // in a process that is not to count
  bool none(int milliseconds) const {
    pollfd reads{ends_[0], POLLIN, 0};
    return poll(&reads, 1, milliseconds) == 1;
  }

 private:
  int ends_[2]{};
};

// What a process does that forks another one, which leads a session of its own.
int fork_and_stay(SharedWords& running) {
  if (fork() == 0) setsid();
  ++running[0];
  for (;;)
    pause();
}

TEST_F(Host, that_ends_ends_with_all_its_processes_and_no_peer_hears_of_it) {
  SharedWords running, ended;
  Hosts hosts(2);
  const Holders holders;
  const Pair pair = connect_hosts(
      hosts,
      [&](int socket) {
        holders.let_go();
        wait_until(ended[0], 1);
        return nothing_comes(socket) ? 0 : 1;
      },
      [&](int) { return fork_and_stay(running); });
  holders.let_go();
  wait_until(running[0], 2);
  EXPECT_FALSE(holders.none(0));
  hosts.end(1);
  EXPECT_TRUE(holders.none(0));
  ended[0] = 1;
  EXPECT_EQ(WTERMSIG(status_of(pair.connects)), SIGKILL);
  EXPECT_EQ(status_of(pair.accepts), 0);
  EXPECT_THROW(hosts.start(1, [] { return 0; }), std::system_error);
}

TEST_F(Host, ends_with_the_process_that_made_it) {
  SharedWords running;
  const Holders holders;
  const pid_t maker = fork();
  if (maker == 0) {
    Hosts hosts(1);
    hosts.start(0, [&] { return fork_and_stay(running); });
    for (;;)
      pause();
  }
  holders.let_go();
  wait_until(running[0], 2);
  EXPECT_FALSE(holders.none(0));
  kill(maker, SIGKILL);
  EXPECT_TRUE(holders.none(60'000));
  EXPECT_EQ(WTERMSIG(status_of(maker)), SIGKILL);
}

}  // namespace
}  // namespace fsdp
