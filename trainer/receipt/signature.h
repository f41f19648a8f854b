#pragma once

#include <string>

// Signatures of receipts: Ed25519 (RFC 8032). Keys are PEM files, as OpenSSL makes them:
//   openssl genpkey -algorithm ed25519 -out KEY.pem
//   openssl pkey -in KEY.pem -pubout -out PUBLIC.pem
namespace fsdp {

// These functions return the content of a file with a key. They throw std::runtime_error, which
// names the file, if it is no plain file of at most 64 KB or has no such key. A private key with a
// password is refused.
std::string private_key_in(const std::string& path);
std::string public_key_in(const std::string& path);

// Returns the signature of `text` by a private key, 128 hexadecimal digits.
std::string sign(const std::string& text, const std::string& private_key);

// Returns whether `signature` is a signature of `text` by the owner of a public key.
bool is_signed_by(const std::string& public_key, const std::string& text,
                  const std::string& signature);

}  // namespace fsdp
