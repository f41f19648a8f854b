#pragma once

namespace fsdp {

// A sign that one rank gives and others wait for, without a collective. Make it before the ranks
// are forked.
class Sign {
 public:
  Sign();  // throws std::system_error
  ~Sign();
  Sign(const Sign&) = delete;  // it owns a pipe
  Sign& operator=(const Sign&) = delete;

  void give() const;  // throws std::system_error
  // Returns when the sign was given, or after 0.3 s: for one that must not come before this rank
  // goes on.
  void wait() const;

 private:
  int ends_[2];
};

}  // namespace fsdp
