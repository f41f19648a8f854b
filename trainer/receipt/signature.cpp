#include <base/whole_file.h>
#include <digest/hexadecimal.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <receipt/signature.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace fsdp {
namespace {

struct Free {
  void operator()(BIO* file) const { BIO_free(file); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
using File = std::unique_ptr<BIO, Free>;
using Key = std::unique_ptr<EVP_PKEY, Free>;
using Context = std::unique_ptr<EVP_MD_CTX, Free>;

using Signature = std::array<unsigned char, 64>;
constexpr uintmax_t kMostBytes = 64 << 10;  // the most bytes of a PEM file with a key
constexpr char kDigits[] = "0123456789abcdef";

// Replaces OpenSSL's callback that asks for a password on the terminal: returns that there is no
// password.
int no_password(char*, int, int, void*) {
  return -1;
}

using Read = EVP_PKEY* (*)(BIO*, EVP_PKEY**, pem_password_cb*, void*);

// Returns the key in `pem`, the text of a PEM file; null if the text has no Ed25519 key.
Key key_of(const std::string& pem, Read read) {
  const File file(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  Key key(read(file.get(), nullptr, no_password, nullptr));
  return key && EVP_PKEY_id(key.get()) == EVP_PKEY_ED25519 ? std::move(key) : nullptr;
}

// Returns the text of the PEM file `path`, and throws std::runtime_error if it has no key that
// `read` accepts. The error's text uses `kind`, the kind of key that the file lacks, and `command`,
// a shell command that makes such a key.
std::string key_in(const std::string& path, Read read, const std::string& kind,
                   const std::string& command) {
  const std::string reason = reason_not_to_read(path);
  if (!reason.empty()) throw std::runtime_error(path + ": " + reason);
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(path, unknown) ||
      std::filesystem::file_size(path, unknown) > kMostBytes)
    throw std::runtime_error(path + ": is no plain file of at most 64 KB");
  std::string pem = content_of(path);
  if (!key_of(pem, read))
    throw std::runtime_error(path + ": has no " + kind + "; make one: " + command);
  return pem;
}

const unsigned char* bytes_of(const std::string& text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

std::string private_key_in(const std::string& path) {
  return key_in(path, PEM_read_bio_PrivateKey, "private key of Ed25519 without a password",
                "openssl genpkey -algorithm ed25519 -out KEY.pem");
}

std::string public_key_in(const std::string& path) {
  return key_in(path, PEM_read_bio_PUBKEY, "public key of Ed25519",
                "openssl pkey -in KEY.pem -pubout -out PUBLIC.pem");
}

std::string sign(const std::string& text, const std::string& private_key) {
  const Key key = key_of(private_key, PEM_read_bio_PrivateKey);
  const Context context(EVP_MD_CTX_new());
  Signature signature{};
  size_t size = signature.size();
  if (EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key.get()) != 1 ||
      EVP_DigestSign(context.get(), signature.data(), &size, bytes_of(text), text.size()) != 1)
    throw std::runtime_error("OpenSSL can't sign the receipt");
  return hexadecimal({reinterpret_cast<const char*>(signature.data()), signature.size()});
}

bool is_signed_by(const std::string& public_key, const std::string& text,
                  const std::string& signature) {
  const Key key = key_of(public_key, PEM_read_bio_PUBKEY);
  Signature bytes{};
  if (signature.size() != 2 * bytes.size()) return false;
  for (size_t i = 0; i < signature.size(); ++i) {
    const auto digit = std::string_view(kDigits).find(signature[i]);
    if (digit == std::string_view::npos) return false;
    bytes[i / 2] = static_cast<unsigned char>(bytes[i / 2] << 4 | digit);
  }
  const Context context(EVP_MD_CTX_new());
  return EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1 &&
         EVP_DigestVerify(context.get(), bytes.data(), bytes.size(), bytes_of(text), text.size()) ==
             1;
}

}  // namespace fsdp
