#pragma once

#include <sched.h>
#include <sys/mman.h>

#include <atomic>

namespace fsdp {

// An array of words in memory that is shared with processes forked later: ranks and the test. All
// words start at 0.
class SharedWords {
 public:
  SharedWords()
      : words_(static_cast<std::atomic<int>*>(
            mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~SharedWords() { munmap(words_, kBytes); }
  SharedWords(const SharedWords&) = delete;
  SharedWords& operator=(const SharedWords&) = delete;

  std::atomic<int>& operator[](int i) { return words_[i]; }

 private:
  static constexpr size_t kBytes = 4096;
  std::atomic<int>* words_;
};

inline void wait_until(const std::atomic<int>& word, int wanted) {
  while (word.load() != wanted)
    sched_yield();
}

// Waits until none of the first `count` words is 0.
inline void wait_until_set(SharedWords& words, int count) {
  for (int i = 0; i < count; ++i) {
    while (words[i] == 0)
      sched_yield();
  }
}

}  // namespace fsdp
