#pragma once

#include <string>

// Signatures of receipts: Ed25519 (RFC 8032). Keys are PEM files, as OpenSSL makes them:
//   openssl genpkey -algorithm ed25519 -out KEY.pem
//   openssl pkey -in KEY.pem -pubout -out PUBLIC.pem
namespace fsdp {

// private_key_in() and public_key_in() return the text of the PEM file `path`. They throw
// std::runtime_error, which names the file, if it is not a plain file of at most 64 KB, or if it
// has no Ed25519 key of that kind. private_key_in() also throws if the key has a password.
std::string private_key_in(const std::string& path);
std::string public_key_in(const std::string& path);

// Returns the signature of `text` by `private_key`, the text of a PEM file, as 128 hexadecimal
// digits.
std::string sign(const std::string& text, const std::string& private_key);

// Returns whether `signature`, 128 hexadecimal digits, is a signature of `text` by the private key
// that belongs to `public_key`, the text of a PEM file.
bool is_signed_by(const std::string& public_key, const std::string& text,
                  const std::string& signature);

}  // namespace fsdp
