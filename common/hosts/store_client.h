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

// What one says to the store through which started ranks find one another. Made inside of a
// StoreClientProcess.
class StoreRequests {
 public:
  virtual ~StoreRequests() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  virtual void append(const std::string& key, const std::string& value) = 0;
  virtual int64_t add(const std::string& key, int64_t number) = 0;  // returns the sum
  // Waits until somebody has set `key`, for at most the time limit. `missing` ends the error if
  // nobody does: "rank 3 has not come".
  virtual std::string get(const std::string& key, const std::string& missing) = 0;
  // Waits for several keys, with one time limit for all, and returns their values. `missing` is
  // called with the places of the keys that are not set yet, and returns the words for them.
  using Missing = std::function<std::string(const std::vector<int>& places)>;
  virtual std::vector<std::string> get_all(const std::vector<std::string>& keys,
                                           const Missing& missing) = 0;
  // Whether `key` is set within `limit`, which may be longer than the time limit of an answer.
  virtual bool comes(const std::string& key, std::chrono::milliseconds limit) = 0;
};

// A process that talks to the store, which it alone connects to: a store has threads, and the
// caller may fork afterwards. What torch prints there is not shown. It ends with this object.
class StoreClientProcess {
 public:
  using Request = std::function<std::string(StoreRequests&)>;
  using Log = std::function<void(const std::string&)>;

  StoreClientProcess(const LaunchedRank& self, const Request& say);
  ~StoreClientProcess();
  StoreClientProcess(const StoreClientProcess&) = delete;
  StoreClientProcess& operator=(const StoreClientProcess&) = delete;

  // What `say` has returned. A wait that takes longer than the patience is announced once. Throws
  // std::runtime_error, which names the rank, the store and what was waited for.
  std::string answer(const Log& tell = {});

  // The same if it has returned or thrown; nothing if it still talks. Throws, too, if the store has
  // not answered for the time limit: to be called once a second or more often.
  std::optional<std::string> answer_so_far();

 private:
  class Lines;
  [[noreturn]] void talk(int pipe, const Request& say) const;
  std::string store() const;
  std::string failed(const std::string& what, const std::string& reason) const;
  std::string waiting(const std::string& what) const;
  std::optional<std::string> answer_in(
      const std::string& line);  // nothing if it says what it waits for

  LaunchedRank self_;
  pid_t process_{};
  OpenFile answer_;  // what `say` has returned: any bytes
  std::unique_ptr<Lines> lines_;
  std::string waits_for_;
  std::chrono::steady_clock::time_point looked_{std::chrono::steady_clock::now()};
  std::chrono::nanoseconds silent_{};  // since the last line, as far as answer_so_far() has looked
};

// Hosts the store of `self` in a process of its own, which ends with this object, on the address
// MASTER_ADDR alone. Throws std::runtime_error if that is no address of this host, or none that
// other hosts reach though ranks are there, or if the port is taken.
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
