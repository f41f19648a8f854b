#include <base/torch.h>
#include <comm/join.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <system_error>

namespace fsdp {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string needed(const char* name) {
  const std::string value = variable(name);
  if (!value.empty()) return value;
  throw std::invalid_argument(std::string(name) +
                              " is not set: a rank that another program has started needs RANK, "
                              "WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
}

int number_in(const char* name, int least, int most, const std::string& reason = "") {
  const std::string text = needed(name);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= least && value <= most) {
    return value;
  }
  throw std::invalid_argument(std::string(name) + "=" + text + " is no number from " +
                              std::to_string(least) + " to " + std::to_string(most) + reason);
}

// Calls `talk` in a process of its own and returns or throws what it does: a store has threads, and
// the caller will fork. What torch prints about connections that it tries again is not shown.
std::string in_another_process(const std::function<std::string()>& talk) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
    std::string answer;
    try {
      answer = "+" + talk();
    } catch (const std::exception& error) {
      answer = std::string("-") + error.what();
    }
    _exit(write(ends[1], answer.data(), answer.size()) < 0);
  }

  close(ends[1]);
  std::string answer;
  char part[512];
  for (ssize_t n; (n = read(ends[0], part, sizeof part)) > 0 || (n < 0 && errno == EINTR);) {
    if (n > 0) answer.append(part, static_cast<size_t>(n));
  }
  close(ends[0]);
  waitpid(child, nullptr, 0);
  if (answer.empty()) throw std::runtime_error("the process that talks to the store has died");
  if (answer[0] == '-') throw std::runtime_error(answer.substr(1));
  return answer.substr(1);
}

// One rank's talk with the store. Each error names the rank, the store and what was waited for.
class Talk {
 public:
  explicit Talk(const StartedRank& self) : self_(self) {
    c10d::TCPStoreOptions options;
    options.port = self.port;
    options.isServer = self.rank == 0 && !self.hosted;
    options.waitWorkers = false;
    options.timeout = self.timeout;
    explain(options.isServer ? "can't host the store" : "can't reach the store", [&] {
      store_ = c10::make_intrusive<c10d::PrefixStore>(
          "fsdp/" + self.group, c10::make_intrusive<c10d::TCPStore>(self.host, options));
    });
  }

  void tell(const std::string& name) {
    explain("can't write to the store", [&] { store_->set(kName, name); });
    for (int rank = 1; rank < self_.world_size; ++rank) {
      explain("rank " + std::to_string(rank) + " has not come", [&] {
        store_->wait({joined(rank)});
        store_->deleteKey(joined(rank));
      });
    }
    // All have read it: whoever joins through this store next must not.
    explain("can't write to the store", [&] { store_->deleteKey(kName); });
  }

  std::string ask() {
    std::string name;
    explain("rank 0 has not come", [&] { name = store_->get_to_str(kName); });
    return name;
  }

  void confirm() {
    explain("can't write to the store", [&] { store_->set(joined(self_.rank), std::string("1")); });
  }

 private:
  static constexpr const char* kName = "name";
  static std::string joined(int rank) { return "joined/" + std::to_string(rank); }

  void explain(const std::string& failure, const std::function<void()>& action) const {
    try {
      action();
    } catch (const c10::Error& error) {
      const std::string reason = error.what_without_backtrace();
      throw std::runtime_error("rank " + std::to_string(self_.rank) +
                               ": can't join the others: " + failure + " (store at " + self_.host +
                               ':' + std::to_string(self_.port) + "; " +
                               reason.substr(0, reason.find('\n')) + ')');
    }
  }

  StartedRank self_;
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace

std::optional<StartedRank> started_rank() {
  if (variable("RANK").empty() && variable("WORLD_SIZE").empty()) return {};
  constexpr int kMany = 100'000;
  StartedRank self;
  self.world_size = number_in("WORLD_SIZE", 1, kMany);
  self.rank =
      number_in("RANK", 0, self.world_size - 1, ", for WORLD_SIZE=" + variable("WORLD_SIZE"));
  const int here = number_in("LOCAL_WORLD_SIZE", 1, kMany);
  if (here != self.world_size) {
    throw std::invalid_argument("LOCAL_WORLD_SIZE=" + std::to_string(here) +
                                " is not WORLD_SIZE=" + std::to_string(self.world_size) +
                                ": ranks on several machines can't be joined, for their calls are "
                                "compared in memory that they share");
  }
  self.host = needed("MASTER_ADDR");
  self.port = static_cast<uint16_t>(number_in("MASTER_PORT", 1, 65535));
  self.hosted = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
  self.group = variable("TORCHELASTIC_RUN_ID") + '/' + variable("TORCHELASTIC_RESTART_COUNT");
  return self;
}

std::shared_ptr<SharedRegion> join(const StartedRank& self) {
  if (self.rank > 0) {
    auto region =
        SharedRegion::open(self.world_size, in_another_process([&] { return Talk(self).ask(); }));
    in_another_process([&] {
      Talk(self).confirm();  // rank 0 waits for this: what it has named is gone when it ends
      return std::string();
    });
    return region;
  }
  auto region = SharedRegion::create_without_arenas(self.world_size);
  const std::string name = region->name();  // it says which process this is
  in_another_process([&] {
    Talk(self).tell(name);
    return std::string();
  });
  return region;
}

}  // namespace fsdp
