#pragma once

#include <testing/watch_page.h>

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace fsdp {

// Thrown if this machine cannot watch a process. Its text is one sentence.
struct CannotWatch : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Memory that this process shares with the programs that it starts: a WatchPage.
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

// Runs the command, which replays a rank, with a hardware watchpoint on page->address, if it is not
// 0, and one on the function that throws exceptions. Addresses are not randomized, so they are the
// same each time. The rank writes the answer into the page (common/testing/watch.h). Its output is
// dropped. Each time that the rank reaches one of the addresses `lines`, which count from the
// program's start, an action `line` is added to the page. Returns the time at which each of these
// addresses was reached last; an address that is missing was never reached. Throws CannotWatch.
std::map<uint64_t, uint64_t> run_watched(const SharedPage& page,
                                         const std::vector<std::string>& command,
                                         const std::vector<uint64_t>& lines = {});

}  // namespace fsdp
