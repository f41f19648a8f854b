#include <gtest/gtest.h>
#include <receipt/signature.h>

#include <common/expect_text.h>
#include <common/temporary_folder.h>

#include <stdexcept>
#include <string>

namespace fsdp {
namespace {

// The keys and the signature of test 2 of RFC 8032, section 7.1.
const std::string kRfcPrivateKey = R"(-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIEzNCJso/5banbbDRuwRTg9bijGfNaumJNqM9u1PuKb7
-----END PRIVATE KEY-----
)";
const std::string kRfcPublicKey = R"(-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAPUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw=
-----END PUBLIC KEY-----
)";
const std::string kRfcText = "\x72";
const std::string kRfcSignature =
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00";
// The public key of test 1 of RFC 8032, section 7.1, which did not make the signature.
const std::string kOtherPublicKey = R"(-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=
-----END PUBLIC KEY-----
)";

// Returns the message of the exception that `call` throws, or "accepted".
template <typename Call>
std::string refusal_of_key(Call call) {
  try {
    call();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Signature, sign_returns_the_signature_that_rfc_8032_publishes) {
  EXPECT_EQ(sign(kRfcText, kRfcPrivateKey), kRfcSignature);
}

TEST(Signature, is_signed_by_is_true_only_for_the_signed_text_its_key_and_its_signature) {
  EXPECT_TRUE(is_signed_by(kRfcPublicKey, kRfcText, kRfcSignature));
  EXPECT_FALSE(is_signed_by(kOtherPublicKey, kRfcText, kRfcSignature));
  EXPECT_FALSE(is_signed_by(kRfcPublicKey, "s", kRfcSignature));
  for (size_t place : {0U, 63U, 64U, 127U}) {
    std::string changed = kRfcSignature;
    changed[place] = changed[place] == '0' ? '1' : '0';
    EXPECT_FALSE(is_signed_by(kRfcPublicKey, kRfcText, changed)) << place;
  }
  for (const std::string& no_signature :
       {std::string(), kRfcSignature.substr(2), kRfcSignature + "00", std::string(128, 'x')})
    EXPECT_FALSE(is_signed_by(kRfcPublicKey, kRfcText, no_signature)) << no_signature;
}

TEST(Signature, a_key_file_without_an_ed25519_key_is_refused_with_its_name) {
  const TemporaryFolder folder;
  folder.write("private", kRfcPrivateKey);
  folder.write("public", kRfcPublicKey);
  folder.write("text", "no key\n");
  folder.write("damaged", kRfcPrivateKey.substr(0, 60));
  folder.write("large", kRfcPrivateKey + std::string(1 << 17, ' '));
  const std::string path = folder.path() + '/';
  EXPECT_EQ(private_key_in(path + "private"), kRfcPrivateKey);
  EXPECT_EQ(public_key_in(path + "public"), kRfcPublicKey);
  for (const char* name : {"public", "text", "damaged"})
    EXPECT_EQ(refusal_of_key([&] { private_key_in(path + name); }),
              path + name +
                  ": has no private key of Ed25519 without a password; make one: openssl genpkey "
                  "-algorithm ed25519 -out KEY.pem");
  for (const char* name : {"private", "text"})
    EXPECT_EQ(refusal_of_key([&] { public_key_in(path + name); }),
              path + name +
                  ": has no public key of Ed25519; make one: openssl pkey -in KEY.pem -pubout -out "
                  "PUBLIC.pem");
  EXPECT_EQ(refusal_of_key([&] { private_key_in(path + "none"); }),
            path + "none: No such file or directory");
  EXPECT_EQ(refusal_of_key([&] { private_key_in(path + "large"); }),
            path + "large: is no plain file of at most 64 KB");
  EXPECT_EQ(refusal_of_key([&] { public_key_in("/dev/zero"); }),
            "/dev/zero: is no plain file of at most 64 KB");
}

}  // namespace
}  // namespace fsdp
