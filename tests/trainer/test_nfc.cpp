#include <gtest/gtest.h>
#include <tokenizer/nfc.h>

namespace fsdp {
namespace {

TEST(Nfc, nfc_joins_a_letter_and_its_combining_marks_into_one_code_point) {
  EXPECT_EQ(nfc("cafe\u0301!"), "caf\u00E9!");
  EXPECT_EQ(nfc("a\u0323\u0302"), "\u1EAD");
  EXPECT_EQ(nfc("\u1E69"), "\u1E69");
  EXPECT_EQ(nfc("plain text"), "plain text");
  EXPECT_EQ(nfc(""), "");
}

TEST(Nfc, nfc_sorts_combining_marks_by_their_combining_classes) {
  EXPECT_EQ(nfc("s\u0307\u0323"), "\u1E69");
  EXPECT_EQ(nfc("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(nfc("\u0307\u0323"), "\u0323\u0307");
}

TEST(Nfc, nfc_does_not_join_a_mark_that_another_mark_of_its_class_blocks) {
  EXPECT_EQ(nfc("a\u0305\u0301"), "a\u0305\u0301");
  EXPECT_EQ(nfc("a\u0316\u0301"), "\u00E1\u0316");
  EXPECT_EQ(nfc("\u1100\u0301\u1161"), "\u1100\u0301\u1161");
}

TEST(Nfc, nfc_replaces_code_points_that_text_in_nfc_never_contains) {
  EXPECT_EQ(nfc("\u2126\u212B\u212A"), "\u03A9\u00C5K");
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093C");  // NFC decomposes U+0958 and does not compose it again
  EXPECT_EQ(nfc("\u0344"), "\u0308\u0301");
}

TEST(Nfc, nfc_joins_the_parts_of_a_hangul_syllable_into_one_code_point) {
  EXPECT_EQ(nfc("\u1112\u1161\u11AB"), "\uD55C");
  EXPECT_EQ(nfc("\uD558\u11AB"), "\uD55C");
  EXPECT_EQ(nfc("\uD55C\u11AB"), "\uD55C\u11AB");
  EXPECT_EQ(nfc("\uD7A3"), "\uD7A3");
  // U+11A7 is not a trailing consonant, so it stays.
  EXPECT_EQ(nfc("\u1112\u1161\u11A7"), "\uD558\u11A7");
}

TEST(Nfc, nfc_leaves_bytes_that_are_not_utf_8_as_they_are) {
  EXPECT_EQ(nfc("e\xFF\u0301\xC3"), "e\xFF\u0301\xC3");
  EXPECT_EQ(nfc("\xE4\xB8"), "\xE4\xB8");
}

}  // namespace
}  // namespace fsdp
