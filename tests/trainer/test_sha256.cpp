#include <digest/sha256.h>

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace fsdp {
namespace {

std::string digest(std::string_view text) {
  Sha256 sha;
  sha.update(std::as_bytes(std::span(text)));
  return sha.hex();
}

TEST(Sha256, sha256_digests_equal_those_that_the_standard_publishes) {
  EXPECT_EQ(digest(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, a_sha256_can_be_updated_after_its_digest_was_taken) {
  Sha256 sha;
  sha.update(std::as_bytes(std::span(std::string_view("ab"))));
  EXPECT_EQ(sha.hex(), digest("ab"));
  sha.update(std::as_bytes(std::span(std::string_view("c"))));
  EXPECT_EQ(sha.hex(), digest("abc"));
}

}  // namespace
}  // namespace fsdp
