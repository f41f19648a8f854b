#include <gtest/gtest.h>
#include <tokenizer/utf8_stream.h>

namespace fsdp {
namespace {

TEST(Utf8Stream, the_utf8_stream_holds_a_character_until_its_last_byte_arrives) {
  const std::string text = "a\u00E9\u4E2D\U0001F600!";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    Utf8Stream stream;
    std::string all;
    for (size_t at = 0; at < text.size(); at += piece)
      all += stream.add(text.substr(at, piece));
    EXPECT_EQ(all + stream.end(), text) << piece;
  }
  Utf8Stream stream;
  EXPECT_EQ(stream.add("x\xF0\x9F\x98"), "x");
  EXPECT_EQ(stream.add("\x80y"), "\U0001F600y");
}

TEST(Utf8Stream, the_utf8_stream_replaces_bytes_that_are_not_utf_8_at_once) {
  Utf8Stream stream;
  EXPECT_EQ(stream.add("\xFF"), "\uFFFD");
  EXPECT_EQ(stream.add("\xE4\xB8"), "");
  EXPECT_EQ(stream.add("a"), "\uFFFDa");
  EXPECT_EQ(stream.add("\xC0\xAF\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(stream.add("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
}

TEST(Utf8Stream, the_utf8_stream_replaces_an_incomplete_character_at_its_end) {
  Utf8Stream stream;
  EXPECT_EQ(stream.add("a\xF0\x9F"), "a");
  EXPECT_EQ(stream.end(), "\uFFFD");
  EXPECT_EQ(stream.end(), "");
  EXPECT_EQ(stream.add("\xC3"), "");
  EXPECT_EQ(stream.add("\xC3"), "\uFFFD");
  EXPECT_EQ(stream.add("\xA9"), "\u00E9");
}

}  // namespace
}  // namespace fsdp
