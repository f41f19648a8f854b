#include <base/text.h>
#include <gtest/gtest.h>

namespace fsdp {
namespace {

TEST(Wrap, wrap_breaks_a_long_line_at_the_last_space_that_fits) {
  EXPECT_EQ(wrap("one two three", 7), "one two\nthree");
  EXPECT_EQ(wrap("one two three", 6), "one\ntwo\nthree");
  EXPECT_EQ(wrap("one two", 7), "one two");
  EXPECT_EQ(wrap("", 7), "");
}

TEST(Wrap, wrap_indents_the_lines_that_it_begins) {
  EXPECT_EQ(wrap("one two three four", 10, 2), "one two\n  three\n  four");
}

TEST(Wrap, wrap_keeps_line_feeds_and_leading_blanks) {
  EXPECT_EQ(wrap("  one two\n\n  three", 7), "  one\ntwo\n\n  three");
}

TEST(Wrap, wrap_cuts_a_word_that_is_longer_than_a_line) {
  EXPECT_EQ(wrap("abcdefgh", 3), "abc\ndef\ngh");
  EXPECT_EQ(wrap("  abcdef gh", 5, 1), "  abc\n def\n gh");
}

TEST(InARow, in_a_row_joins_words_by_commas_and_the_last_one_by_a_conjunction) {
  EXPECT_EQ(in_a_row({}, "and"), "");
  EXPECT_EQ(in_a_row({"a"}, "and"), "a");
  EXPECT_EQ(in_a_row({"a", "b"}, "or"), "a or b");
  EXPECT_EQ(in_a_row({"a", "b", "c"}, "and"), "a, b and c");
}

}  // namespace
}  // namespace fsdp
