#pragma once

#include <cstddef>
#include <map>

namespace fsdp {

// A set of addresses, kept as ranges that do not adjoin each other; for example what is free of a
// stretch of memory. Touches none of the memory.
class AddressRanges {
 public:
  enum class From { begin, end };

  // Takes `bytes` out of the first range that is long enough, from the begin or from the end of the
  // set. Returns their begin, or null if no range is long enough.
  char* take(size_t bytes, From from);

  void insert(char* begin, size_t bytes);  // none of them may be in the set
  size_t remove(char* begin,
                size_t bytes);  // those that are in the set; returns how many they were

  const std::map<char*, size_t>& all() const { return ranges_; }  // begin, bytes

 private:
  std::map<char*, size_t> ranges_;
};

}  // namespace fsdp
