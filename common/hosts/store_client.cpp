#include <base/processes.h>
#include <base/torch.h>
#include <base/write_all.h>
#include <fcntl.h>
#include <hosts/rendezvous.h>
#include <hosts/store_client.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace fsdp {
namespace {

// Writes to `pipe` a line whose first letter is its kind: kWaits, kAnswers or kFails. Cuts `text`
// after 2000 bytes, so that the system writes the line to the pipe as a whole.
void write_line(int pipe, char kind, const std::string& text) {
  const std::string line = kind + text.substr(0, 2000) + '\n';
  if (write(pipe, line.data(), line.size()) < 0) _exit(1);
}
constexpr char kWaits = '?', kAnswers = '+', kFails = '-';

// The child process limits its waits for the store. This process waits 1 s longer for the child.
constexpr std::chrono::milliseconds kSlack{1000};

// Makes the requests to the store over a connection of this process. Calls `waits` before each
// wait, with a text that names what is missing. The text of an exception is what was missing, a
// tab, and the reason.
class ConnectedStore final : public StoreRequests {
 public:
  ConnectedStore(const LaunchedRank& self, StoreClientProcess::Log waits)
      : waits_(std::move(waits)),
        limit_(self.timeout),
        part_(std::max(self.timeout / 2, std::chrono::milliseconds(1))) {
    const std::string failure = "can't reach the store";
    waits_(failure);
    explain(failure, [&] { store_ = store_of(self); });
  }

  void set(const std::string& key, const std::string& value) override {
    explain(kSilent, [&] { store_->set(key, value); });
  }
  void append(const std::string& key, const std::string& value) override {
    explain(kSilent, [&] { store_->append(key, {value.begin(), value.end()}); });
  }
  int64_t add(const std::string& key, int64_t number) override {
    int64_t sum = 0;
    explain(kSilent, [&] { sum = store_->add(key, number); });
    return sum;
  }
  std::string get(const std::string& key, const std::string& missing) override {
    std::string value;
    waits_(missing);
    explain(missing, [&] { value = store_->get_to_str(key); });
    return value;
  }
  // Waits for the first key that is not set. When it is set, or after one second, checks again
  // which keys are not set.
  std::vector<std::string> get_all(const std::vector<std::string>& keys,
                                   const Missing& missing) override {
    const auto deadline = std::chrono::steady_clock::now() + limit_;
    for (;;) {
      std::vector<int> places;
      explain(kSilent, [&] {
        for (size_t i = 0; i < keys.size(); ++i)
          if (!store_->check({keys[i]})) places.push_back(static_cast<int>(i));
      });
      if (places.empty()) break;
      const std::string text = missing(places);
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      if (left.count() <= 0) throw std::runtime_error(text + '\t' + kTooLong);
      waits_(text);
      wait_for(keys[static_cast<size_t>(places.front())], text,
               std::min<std::chrono::milliseconds>(left, std::chrono::seconds(1)));
    }
    std::vector<std::string> values;
    for (const std::string& key : keys)
      explain(kSilent, [&] { values.push_back(store_->get_to_str(key)); });
    return values;
  }
  // Waits for half a time limit at a time, because after each part the store must answer.
  // Otherwise, if the network is cut, the connection does not break, and a read from it waits for
  // ever.
  bool comes(const std::string& key, std::chrono::milliseconds limit) override {
    for (; limit > part_; limit -= part_)
      if (comes_within(part_, key)) return true;
    return comes_within(limit, key);
  }

 private:
  static constexpr const char* kSilent = "the store does not answer";
  static constexpr const char* kTooLong = "no answer within the time limit";

  bool comes_within(std::chrono::milliseconds limit, const std::string& key) {
    waits_(kSilent);
    try {
      store_->wait({key}, limit);
      return true;
    } catch (const c10::Error&) {
      // The wait may have failed because `key` is not set or because the store does not answer; in
      // the second case explain() throws.
      bool found = false;
      explain(kSilent, [&] { found = store_->check({key}); });
      return found;
    }
  }

  // Waits until `key` is set, for at most `limit`. Also returns if `key` is not set after `limit`.
  // Throws if the store does not answer.
  void wait_for(const std::string& key, const std::string& missing,
                std::chrono::milliseconds limit) {
    try {
      store_->wait({key}, limit);
    } catch (const c10::Error&) {
      explain(missing, [&] { store_->check({key}); });
    }
  }

  static void explain(const std::string& failure, const std::function<void()>& action) {
    try {
      action();
    } catch (const c10::Error& error) {
      std::string reason = error.what_without_backtrace();
      reason = reason.substr(0, reason.find('\n'));
      // A reason that lists keys of the store is replaced, because these keys mean nothing to the
      // user.
      if (reason.find("keys: ") != std::string::npos) reason = kTooLong;
      throw std::runtime_error(failure + '\t' + reason);
    }
  }

  StoreClientProcess::Log waits_;
  std::chrono::milliseconds limit_, part_;
  c10::intrusive_ptr<c10d::Store> store_;
};

pid_t fork_for(const std::function<void()>& body) {
  const pid_t parent = getpid();
  const pid_t process = fork();
  if (process < 0) throw std::system_error(errno, std::generic_category(), "cannot fork a process");
  if (process > 0) return process;
  end_with(parent);
  dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
  body();
  _exit(0);
}

void end_process(pid_t process) {
  kill(process, SIGKILL);
  waitpid(process, nullptr, 0);
}

}  // namespace

// Reads the lines that another process writes to a pipe.
class StoreClientProcess::Lines {
 public:
  explicit Lines(int pipe) : pipe_(pipe) {}

  // Returns the next line; nothing if none arrives within `limit`; an empty line when the writer
  // has ended.
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
      pollfd waiting{pipe_.descriptor, POLLIN, 0};
      const int found =
          poll(&waiting, 1, static_cast<int>(std::min<int64_t>(left.count(), 1 << 30)));
      if (found == 0) return std::nullopt;
      char part[512];
      const ssize_t count = found > 0 ? read(pipe_.descriptor, part, sizeof part) : -1;
      if (count == 0) return "";
      if (count > 0) read_.append(part, static_cast<size_t>(count));
    }
  }

 private:
  OpenFile pipe_;
  std::string read_;
};

StoreClientProcess::StoreClientProcess(const LaunchedRank& self, const Request& request)
    : self_(self), answer_(memory_file("fsdp_answer")), waits_for_("the store does not answer") {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw std::system_error(errno, std::generic_category(), "cannot make a pipe");
  process_ = fork_for([&] { run(ends[1], request); });
  close(ends[1]);
  lines_ = std::make_unique<Lines>(ends[0]);
}

StoreClientProcess::~StoreClientProcess() {
  end_process(process_);
}

std::string StoreClientProcess::answer(const Log& log) {
  bool told = !log || self_.timeout <= self_.announce_after;
  // The time at which answer() announces to the user that this rank waits. Lines from the child
  // about further waits do not postpone this time.
  const auto announce_at = std::chrono::steady_clock::now() + self_.announce_after;
  for (;;) {
    const auto patience =
        std::max(std::chrono::milliseconds(0), std::chrono::ceil<std::chrono::milliseconds>(
                                                   announce_at - std::chrono::steady_clock::now()));
    // The child process has the same time limit, and its error has more details, so this process
    // waits a little longer for that error. It does not wait until the child ends, because a name
    // server can hold up the child for longer.
    const auto line = lines_->next(told ? self_.timeout + kSlack : patience);
    if (!line && told)
      throw std::runtime_error(failed(waits_for_, "no answer within the time limit"));
    if (!line) {
      log(waiting(waits_for_));
      told = true;
    } else if (auto answer = answer_in(*line)) {
      return *answer;
    }
  }
}

std::optional<std::string> StoreClientProcess::answer_so_far() {
  const auto now = std::chrono::steady_clock::now();
  // Adds at most 1 s to the time in which the store was silent: if more time has passed since the
  // last call, this process was stopped meanwhile.
  silent_ += std::min<std::chrono::nanoseconds>(now - looked_, std::chrono::seconds(1));
  looked_ = now;
  while (const auto line = lines_->next(std::chrono::milliseconds(0))) {
    silent_ = {};
    if (auto answer = answer_in(*line)) return answer;
  }
  if (silent_ > self_.timeout / 2 + self_.timeout + kSlack)
    throw std::runtime_error(failed(waits_for_, "no answer within the time limit"));
  return std::nullopt;
}

std::optional<std::string> StoreClientProcess::answer_in(const std::string& line) {
  if (line.empty())
    throw std::runtime_error("the child process that connects to the store has died");
  const std::string text = line.substr(1);
  if (line.front() == kAnswers) return content_of(answer_, "the answer of the store");
  if (line.front() == kFails) {
    const size_t middle = text.find('\t');
    throw std::runtime_error(middle == std::string::npos
                                 ? text
                                 : failed(text.substr(0, middle), text.substr(middle + 1)));
  }
  waits_for_ = text;
  return std::nullopt;
}

void StoreClientProcess::run(int pipe, const Request& request) const {
  try {
    ConnectedStore store(self_,
                         [pipe](const std::string& text) { write_line(pipe, kWaits, text); });
    if (write_all(answer_.descriptor, request(store)) != 0) _exit(1);
    write_line(pipe, kAnswers, "");
  } catch (const std::exception& error) {
    write_line(pipe, kFails, error.what());
  }
  _exit(0);
}

std::string StoreClientProcess::store() const {
  return "store at " + self_.host + ':' + std::to_string(self_.port);
}

std::string StoreClientProcess::failed(const std::string& what, const std::string& reason) const {
  return "rank " + std::to_string(self_.rank) + ": can't join the others: " + what + " (" +
         store() + "; " + reason + ')';
}

std::string StoreClientProcess::waiting(const std::string& what) const {
  const bool can_unset = self_.launcher == "torchrun" || self_.launcher == kPlainLauncher;
  return "rank " + std::to_string(self_.rank) + " waits: " + what + " (" + store() + "; " +
         self_.launcher + " has started " + std::to_string(self_.world_size) + " ranks" +
         (can_unset ? "; unset RANK and WORLD_SIZE to start all ranks here)" : ")");
}

StoreServer::StoreServer(const LaunchedRank& self) {
  const std::string at = "MASTER_ADDR=" + self.host;
  const auto fail = [](const std::string& text) { throw std::runtime_error("rank 0: " + text); };
  const auto found = addresses_of(self.host, self.port);
  const std::string address = text_of(found->ai_addr, found->ai_addrlen);
  const bool loops_back = address.starts_with("127.") || address == "::1";
  if (loops_back && self.local_world_size > 0 && self.local_world_size < self.world_size)
    fail(at + " is " + address + " on this host, which other hosts can't reach, and " +
         std::to_string(self.world_size - self.local_world_size) +
         " ranks are there; give an address of this host's network");
  const OpenFile socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  setsockopt(socket.descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(socket.descriptor, found->ai_addr, found->ai_addrlen) != 0 ||
      listen(socket.descriptor, SOMAXCONN) != 0) {
    if (errno == EADDRNOTAVAIL)
      fail(at + " is not an address of this host, where rank 0 runs and hosts the store");
    fail("can't host the store at " + self.host + ':' + std::to_string(self.port) + ": " +
         std::strerror(errno) + "; set MASTER_PORT to a free port on all ranks");
  }
  process_ = fork_for([&] {
    c10d::TCPStoreOptions options;
    options.port = self.port;
    options.waitWorkers = false;
    options.isServer = true;
    options.masterListenFd = socket.descriptor;
    const c10d::TCPStore server(self.host, options);
    for (;;)
      pause();
  });
}

StoreServer::~StoreServer() {
  end_process(process_);
}

}  // namespace fsdp
