#include <base/todo.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdio>

namespace fsdp {
namespace {

// Stores the names that were passed to the first todo() which was called since the last
// take_todo(). The Note lies in memory that a process shares with the processes that it forks.
struct Note {
  std::atomic<bool> taken;
  char text[1024];
};

Note& note() {
  static Note* const shared = [] {
    void* page =
        mmap(nullptr, sizeof(Note), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) throw std::runtime_error("todo: cannot map a shared page");
    return new (page) Note{};
  }();
  return *shared;
}

}  // namespace

void todo(const char* symbol, const char* problem) {
  std::string text = std::string(symbol) + " (problem " + problem + ")";
  if (!note().taken.exchange(true)) {
    std::snprintf(note().text, sizeof note().text, "%s", text.c_str());
  }
  throw NotStarted("not started: " + text);
}

std::string take_todo() {
  std::string text = note().text;
  note().text[0] = '\0';
  note().taken = false;
  return text;
}

}  // namespace fsdp
