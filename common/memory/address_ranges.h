#pragma once

#include <cstddef>
#include <map>

namespace fsdp {

// A set of addresses, stored as ranges with gaps between them; for example the free bytes of a
// piece of memory. The class does not access the memory at these addresses.
class AddressRanges {
 public:
  enum class From { begin, end };

  // Removes `bytes` addresses from a range that is long enough: from the beginning of the first
  // such range, or from the end of the last one. Returns the first removed address, or null if no
  // range is long enough.
  char* take(size_t bytes, From from);

  // Adds the `bytes` addresses from `begin` on. None of them may be in the set already.
  void insert(char* begin, size_t bytes);
  // Removes those of the `bytes` addresses from `begin` on that are in the set. Returns how many
  // addresses it removed.
  size_t remove(char* begin, size_t bytes);

  // Returns the ranges as a map: first address of a range -> number of bytes of the range.
  const std::map<char*, size_t>& all() const { return ranges_; }

 private:
  std::map<char*, size_t> ranges_;
};

}  // namespace fsdp
