#pragma once
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
namespace fsdp {
inline int mutant() {
  static const int number = std::getenv("FSDP_MUTANT") ? std::atoi(std::getenv("FSDP_MUTANT")) : 0;
  return number;
}
template <class T>  // a pointer that owns nothing in place of one that does
std::shared_ptr<T> unowned(int number, std::shared_ptr<T> owner) {
  return mutant() == number ? std::shared_ptr<T>(std::shared_ptr<T>(), owner.get()) : owner;
}
template <class T>
struct Held {
  std::weak_ptr<T> weak;
  std::shared_ptr<T> strong;
  std::shared_ptr<T> lock() const { return weak.lock(); }
};
template <class T>  // a pointer that owns in place of a weak one
Held<T> held(int number, std::weak_ptr<T> weak) {
  return {weak, mutant() == number ? weak.lock() : nullptr};
}
}  // namespace fsdp
