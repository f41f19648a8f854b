#include <base/processes.h>
#include <base/torch.h>
#include <comm/join.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <system_error>
#include <utility>

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

using Tell = std::function<void(const std::string&)>;

// Writes one line: what its first letter says. The pipe takes it as a whole.
void write_line(int pipe, char kind, const std::string& text) {
  const std::string line = kind + text.substr(0, 2000) + '\n';
  if (write(pipe, line.data(), line.size()) < 0) _exit(1);
}
constexpr char kWaits = '?', kAnswer = '+', kError = '-';

// One rank's talk with the store, in a process of its own: a store has threads. It says by `waits`
// for whom it waits before it does. Each error says what was waited for.
class Talk {
 public:
  Talk(const StartedRank& self, Tell waits) : self_(self), waits_(std::move(waits)) {
    c10d::TCPStoreOptions options;
    options.port = self.port;
    options.isServer = self.rank == 0 && !self.hosted;
    options.waitWorkers = false;
    options.timeout = self.timeout;
    if (!options.isServer) waits_("can't reach the store");
    explain(options.isServer ? "can't host the store" : "can't reach the store", [&] {
      store_ = c10::make_intrusive<c10d::PrefixStore>(
          "fsdp/" + self.group, c10::make_intrusive<c10d::TCPStore>(self.host, options));
    });
  }

  void tell(const std::string& name) {
    explain("can't write to the store", [&] { store_->set(kName, name); });
    for (int rank = 1; rank < self_.world_size; ++rank) {
      wait_for(rank, [&] {
        store_->wait({joined(rank)});
        store_->deleteKey(joined(rank));
      });
    }
    // All have read it: whoever joins through this store next must not.
    explain("can't write to the store", [&] { store_->deleteKey(kName); });
  }

  std::string ask() {
    std::string name;
    wait_for(0, [&] { name = store_->get_to_str(kName); });
    return name;
  }

  void confirm() {
    explain("can't write to the store", [&] { store_->set(joined(self_.rank), std::string("1")); });
  }

 private:
  static constexpr const char* kName = "name";
  static std::string joined(int rank) { return "joined/" + std::to_string(rank); }

  void wait_for(int rank, const std::function<void()>& action) const {
    const std::string failure = "rank " + std::to_string(rank) + " has not come";
    waits_(failure);
    explain(failure, action);
  }

  void explain(const std::string& failure, const std::function<void()>& action) const {
    try {
      action();
    } catch (const c10::Error& error) {
      const std::string reason = error.what_without_backtrace();
      throw std::runtime_error(failure + '\t' + reason.substr(0, reason.find('\n')));
    }
  }

  StartedRank self_;
  Tell waits_;
  c10::intrusive_ptr<c10d::Store> store_;
};

// The end of a pipe that a process writes lines to.
class Lines {
 public:
  explicit Lines(int pipe) : pipe_(pipe) {}
  ~Lines() { close(pipe_); }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;

  // The next line; nothing if none has come within `limit`; empty at the end.
  std::optional<std::string> next(std::chrono::milliseconds limit) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    for (;;) {
      if (const size_t end = read_.find('\n'); end != std::string::npos) {
        std::string line = read_.substr(0, end);
        read_.erase(0, end + 1);
        return line;
      }
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(
          std::max(deadline - std::chrono::steady_clock::now(), std::chrono::nanoseconds(0)));
      pollfd waiting{pipe_, POLLIN, 0};
      const int found =
          poll(&waiting, 1, static_cast<int>(std::min<int64_t>(left.count(), 1 << 30)));
      if (found == 0) return std::nullopt;
      char part[512];
      const ssize_t count = found > 0 ? read(pipe_, part, sizeof part) : -1;
      if (count == 0) return "";
      if (count > 0) read_.append(part, static_cast<size_t>(count));
    }
  }

 private:
  int pipe_;
  std::string read_;
};

// A process that talks to the store. What torch prints there about connections that it tries again
// is not shown. It ends with this object.
class Talker {
 public:
  using Say = std::function<std::string(Talk&)>;

  Talker(const StartedRank& self, const Say& say) : self_(self) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
      throw std::system_error(errno, std::generic_category(), "pipe");
    const pid_t parent = getpid();
    process_ = fork();
    if (process_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
    if (process_ == 0) {
      end_with(parent);
      dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
      talk(ends[1], say);
    }
    close(ends[1]);
    lines_.emplace(ends[0]);
  }
  ~Talker() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  Talker(const Talker&) = delete;
  Talker& operator=(const Talker&) = delete;

  // What `say` has returned. A wait that takes longer than the patience is told once.
  std::string answer(const Tell& tell) {
    std::string waits_for = "the store does not answer";
    bool told = !tell || self_.timeout <= self_.patience;
    for (;;) {
      // The process has the same limit and knows more. But a name server may hold it for longer.
      auto line = lines_->next(told ? self_.timeout + kGrace : self_.patience);
      if (!line && !told) {
        tell(waiting(waits_for));
        told = true;
        line = lines_->next(self_.timeout - self_.patience + kGrace);
      }
      if (!line) throw std::runtime_error(failed(waits_for, "no answer within the time limit"));
      if (line->empty()) throw std::runtime_error("the process that talks to the store has died");
      const std::string text = line->substr(1);
      if (line->front() == kAnswer) return text;
      if (line->front() == kWaits) {
        waits_for = text;
      } else {
        const size_t middle = text.find('\t');
        throw std::runtime_error(middle == std::string::npos
                                     ? text
                                     : failed(text.substr(0, middle), text.substr(middle + 1)));
      }
    }
  }

 private:
  static constexpr std::chrono::milliseconds kGrace{1000};

  [[noreturn]] void talk(int pipe, const Say& say) const {
    try {
      Talk talk(self_, [pipe](const std::string& text) { write_line(pipe, kWaits, text); });
      write_line(pipe, kAnswer, say(talk));
    } catch (const std::exception& error) {
      write_line(pipe, kError, error.what());
    }
    _exit(0);
  }

  std::string store() const { return "store at " + self_.host + ':' + std::to_string(self_.port); }

  std::string failed(const std::string& what, const std::string& reason) const {
    return "rank " + std::to_string(self_.rank) + ": can't join the others: " + what + " (" +
           store() + "; " + reason + ')';
  }

  std::string waiting(const std::string& what) const {
    return "rank " + std::to_string(self_.rank) + " waits: " + what + " (" + store() +
           "; RANK and WORLD_SIZE are set, as torchrun does; unset them to start all ranks here)";
  }

  StartedRank self_;
  pid_t process_{};
  std::optional<Lines> lines_;
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

std::shared_ptr<SharedRegion> join(const StartedRank& self, const Tell& tell) {
  if (self.rank > 0) {
    auto region = SharedRegion::open(
        self.world_size, Talker(self, [](Talk& talk) { return talk.ask(); }).answer(tell));
    Talker(self, [](Talk& talk) {
      talk.confirm();  // rank 0 waits for this: what it has named is gone when it ends
      return std::string();
    }).answer(tell);
    return region;
  }
  auto region = SharedRegion::create_without_arenas(self.world_size);
  const std::string name = region->name();  // it says which process this is
  Talker(self, [name](Talk& talk) {
    talk.tell(name);
    return std::string();
  }).answer(tell);
  return region;
}

}  // namespace fsdp
