#include <digest/hexadecimal.h>
#include <digest/sha256.h>
#include <openssl/evp.h>

#include <array>
#include <stdexcept>

namespace fsdp {
namespace {

void check_openssl(bool done) {
  if (!done) throw std::runtime_error("SHA-256: OpenSSL failed, out of memory or without SHA-256");
}

}  // namespace

void Sha256::Free::operator()(evp_md_ctx_st* context) const {
  EVP_MD_CTX_free(context);
}

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  check_openssl(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
}

void Sha256::update(std::span<const std::byte> bytes) {
  check_openssl(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
}

std::string Sha256::bytes() const {
  const Context last(EVP_MD_CTX_new());
  std::array<unsigned char, 32> digest{};
  check_openssl(last && EVP_MD_CTX_copy_ex(last.get(), context_.get()) == 1 &&
                EVP_DigestFinal_ex(last.get(), digest.data(), nullptr) == 1);
  return {digest.begin(), digest.end()};
}

std::string Sha256::hex() const {
  return hexadecimal(bytes());
}

}  // namespace fsdp
