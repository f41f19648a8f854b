#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

struct evp_md_ctx_st;  // of OpenSSL

namespace fsdp {

// The SHA-256 digest (FIPS 180-4) of bytes that come in parts.
class Sha256 {
 public:
  Sha256();

  void update(std::span<const std::byte> bytes);

  // The digest of all bytes so far, as 64 lower-case hexadecimal digits; update() may go on after
  // it.
  std::string hex() const;

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  using Context = std::unique_ptr<evp_md_ctx_st, Free>;

  Context context_;
};

}  // namespace fsdp
