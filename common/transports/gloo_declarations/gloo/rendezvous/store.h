#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace gloo::rendezvous {

// gloo::rendezvous::Store is declared here so that the header of c10d::ProcessGroupGloo can declare
// a subclass of it. Objects of that subclass are created inside libtorch.
class Store {
 public:
  using Bytes = std::vector<char>;
  using Keys = std::vector<std::string>;

  virtual ~Store();
  virtual void set(const std::string& key, const Bytes& data) = 0;
  virtual Bytes get(const std::string& key) = 0;
  virtual void wait(const Keys& keys) = 0;
  virtual void wait(const Keys& keys, const std::chrono::milliseconds& timeout) = 0;
  virtual bool has_v2_support() = 0;
  virtual std::vector<Bytes> multi_get(const Keys& keys) = 0;
  virtual void multi_set(const Keys& keys, const std::vector<Bytes>& values) = 0;
  virtual void append(const std::string& key, const Bytes& data) = 0;
  virtual int64_t add(const std::string& key, int64_t value) = 0;
};

}  // namespace gloo::rendezvous
