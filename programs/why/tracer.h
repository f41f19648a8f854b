#pragma once

#include <watch/watch_page.h>

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace fsdp {

// The exception for a machine on which a process cannot be watched, for example because it has no
// hardware watchpoints. Its text is one sentence.
struct CannotWatch : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Owns a WatchPage in memory that this process shares with the process that replays the rank.
class SharedPage {
 public:
  SharedPage();
  ~SharedPage();
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;

  WatchPage& operator*() const { return *page_; }
  WatchPage* operator->() const { return page_; }
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
  WatchPage* page_;
};

// Runs `command`, which replays a rank, and waits until it ends.
// - If page->address is not 0, a hardware watchpoint watches writes to it. Another one watches the
//   function that throws exceptions. Addresses are not randomized, so each replay has the same
//   ones.
// - The rank writes what it did into the page (common/watch/watch.h). Its output is discarded.
// - `lines`: addresses, counted from the program's start. Each time that the rank reaches one, an
//   action of the kind `line` is added to the page.
// Returns, for each address of `lines` that the rank has reached, the number of the action with
// which it reached it last. Throws CannotWatch if this machine cannot watch the process, and
// std::runtime_error if the rank cannot be run.
std::map<uint64_t, uint64_t> run_watched(const SharedPage& page,
                                         const std::vector<std::string>& command,
                                         const std::vector<uint64_t>& lines = {});

}  // namespace fsdp
