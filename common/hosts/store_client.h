#pragma once

#include <base/memory_file.h>
#include <launch/launched.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

// The requests to the store through which launched ranks find one another. StoreClientProcess
// creates this object in its child process.
class StoreRequests {
 public:
  virtual ~StoreRequests() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  virtual void append(const std::string& key, const std::string& value) = 0;
  // Adds `number` to the integer at `key`, and returns the sum.
  virtual int64_t add(const std::string& key, int64_t number) = 0;
  // Waits until a process has set `key`, for at most the time limit, and returns the value.
  // `missing` is the part of the error that names what is missing: "rank 3 has not come".
  virtual std::string get(const std::string& key, const std::string& missing) = 0;
  // Waits for several keys, with one time limit for all, and returns their values. `missing`
  // receives the positions in `keys` of the keys that are not set yet, and returns the part of the
  // error that names what is missing.
  using Missing = std::function<std::string(const std::vector<int>& places)>;
  virtual std::vector<std::string> get_all(const std::vector<std::string>& keys,
                                           const Missing& missing) = 0;
  // Waits until `key` is set, for at most `limit`, which may be longer than the time limit within
  // which the store must answer. Returns whether `key` is set.
  virtual bool comes(const std::string& key, std::chrono::milliseconds limit) = 0;
};

// A child process that connects to the store and runs `request`, a function that makes requests and
// returns a text. The caller does not connect, because c10d's store starts threads and the caller
// must still be able to fork. What torch prints in the child is discarded. The destructor ends the
// child.
class StoreClientProcess {
 public:
  using Request = std::function<std::string(StoreRequests&)>;
  using Log = std::function<void(const std::string&)>;

  StoreClientProcess(const LaunchedRank& self, const Request& request);
  ~StoreClientProcess();
  StoreClientProcess(const StoreClientProcess&) = delete;
  StoreClientProcess& operator=(const StoreClientProcess&) = delete;

  // Waits until `request` returns, and returns its text. A wait of `request` that takes longer than
  // `self.announce_after` is announced once through `log`. Throws std::runtime_error, which names
  // the rank, the store and what is missing.
  std::string answer(const Log& log = {});

  // Does not wait. If `request` has ended, returns its text, or throws as answer() does. Returns
  // nothing if `request` still runs. Also throws if the store has not answered for a little more
  // than one and a half time limits. Must be called at least once a second.
  std::optional<std::string> answer_so_far();

 private:
  class Lines;
  [[noreturn]] void run(int pipe, const Request& request) const;
  std::string store() const;
  std::string failed(const std::string& what, const std::string& reason) const;
  std::string waiting(const std::string& what) const;
  // `line` is a line from the child process. Returns the text of `request` if the line reports that
  // `request` has ended, nothing if it reports a wait. Throws if it reports an error.
  std::optional<std::string> answer_in(const std::string& line);

  LaunchedRank self_;
  pid_t process_{};
  OpenFile answer_;  // file in memory to which the child writes the text that `request` returns
  std::unique_ptr<Lines> lines_;
  std::string waits_for_;
  std::chrono::steady_clock::time_point looked_{std::chrono::steady_clock::now()};
  // For how long the child had written no line at the last call of answer_so_far(). Of the time
  // between two calls of answer_so_far(), at most 1 s counts.
  std::chrono::nanoseconds silent_{};
};

// Hosts the store of `self`, at the address MASTER_ADDR only, in a child process that ends with
// this object. Throws std::runtime_error if MASTER_ADDR is not an address of this host, if it is a
// loopback address although ranks are on other hosts, or if the port is taken.
class StoreServer {
 public:
  explicit StoreServer(const LaunchedRank& self);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

 private:
  pid_t process_{};
};

}  // namespace fsdp
