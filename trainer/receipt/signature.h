#pragma once

#include <string>

// Signatures of receipts: Ed25519 (RFC 8032). Keys are PEM files, as OpenSSL makes them:
//   openssl genpkey -algorithm ed25519 -out KEY.pem
//   openssl pkey -in KEY.pem -pubout -out PUBLIC.pem
namespace fsdp {

// Returns the signature of `text` by a private key, 128 hexadecimal digits. Throws
// std::runtime_error, which names the file, if it can't be read or has no such key without a
// password.
std::string sign(const std::string& text, const std::string& private_key);

// Returns whether `signature` is a signature of `text` by the owner of a public key. Throws
// std::runtime_error, which names the file, if it can't be read or has no such key.
bool is_signed_by(const std::string& public_key, const std::string& text,
                  const std::string& signature);

}  // namespace fsdp
