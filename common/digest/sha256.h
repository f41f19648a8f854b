#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX

namespace fsdp {

// Computes the SHA-256 digest (FIPS 180-4) of bytes that are passed in parts.
class Sha256 {
 public:
  Sha256();

  void update(std::span<const std::byte> bytes);

  // bytes() and hex() return the digest of all bytes that update() has received so far. More
  // update() calls may follow.
  std::string bytes() const;  // the digest as 32 bytes
  std::string hex() const;    // the digest as 64 lower-case hexadecimal digits

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  using Context = std::unique_ptr<evp_md_ctx_st, Free>;

  Context context_;
};

}  // namespace fsdp
