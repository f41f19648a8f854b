#pragma once

#include <cstddef>
#include <map>

namespace fsdp {

// A set of addresses, stored as ranges with gaps between them; for example the free bytes of a
// piece of memory. It does not access the memory.
class AddressRanges {
 public:
  enum class From { begin, end };

  // Removes `bytes` addresses from a range that is long enough: from the beginning of the first
  // such range, or from the end of the last one. Returns the first removed address, or null if no
  // range is long enough.
  char* take(size_t bytes, From from);

  void insert(char* begin, size_t bytes);  // no address of the range may be in the set
  // Removes the addresses of this range, as far as they are in the set. Returns how many it
  // removed.
  size_t remove(char* begin, size_t bytes);

  const std::map<char*, size_t>& all() const { return ranges_; }  // first address -> bytes

 private:
  std::map<char*, size_t> ranges_;
};

}  // namespace fsdp
