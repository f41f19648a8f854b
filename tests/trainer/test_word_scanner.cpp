#include <gtest/gtest.h>
#include <tokenizer/word_scanner.h>

#include <stdexcept>

#include <common/expect_text.h>

namespace fsdp {
namespace {

using Words = std::vector<std::string>;

const std::string kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

Words words(const std::string& pattern, const std::string& text) {
  const WordScanner scanner(pattern);
  Words all;
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    end = scanner.end_of_word(text, begin);
    all.push_back(text.substr(begin, end - begin));
  }
  return all;
}

TEST(WordScanner, the_patterns_of_gpt2_llama_3_and_qwen_split_one_text_differently) {
  const std::string text = "I'll pay 12345.67 (now)!\n";
  EXPECT_EQ(words(kGPT2Pattern, text),
            Words({"I", "'ll", " pay", " 12345", ".", "67", " (", "now", ")!", "\n"}));
  EXPECT_EQ(words(kLlama3Pattern, text),
            Words({"I", "'ll", " pay", " ", "123", "45", ".", "67", " (", "now", ")!\n"}));
  EXPECT_EQ(words(kQwenPattern, text), Words({"I", "'ll", " pay", " ", "1", "2", "3", "4", "5", ".",
                                              "6", "7", " (", "now", ")!\n"}));
}

TEST(WordScanner, the_last_of_several_spaces_belongs_to_the_word_that_follows) {
  EXPECT_EQ(words(kGPT2Pattern, "a   b"), Words({"a", "  ", " b"}));
  EXPECT_EQ(words(kGPT2Pattern, "a b"), Words({"a", " b"}));
  EXPECT_EQ(words(kGPT2Pattern, "a\n\tb"), Words({"a", "\n", "\t", "b"}));
  EXPECT_EQ(words(kGPT2Pattern,
                  "a \xC2\xA0"
                  "b"),
            Words({"a", " ", "\xC2\xA0", "b"}));
  EXPECT_EQ(words(kLlama3Pattern, "a\t\tb"), Words({"a", "\t", "\tb"}));
}

TEST(WordScanner, the_word_scanner_makes_one_word_of_spaces_at_the_end_of_the_text) {
  EXPECT_EQ(words(kGPT2Pattern, "a   "), Words({"a", "   "}));
  EXPECT_EQ(words(kGPT2Pattern, " "), Words({" "}));
  EXPECT_EQ(words(kLlama3Pattern, "a  \n  "), Words({"a", "  \n", "  "}));
}

TEST(WordScanner, in_llama_3s_pattern_a_word_of_spaces_ends_after_its_last_line_break) {
  EXPECT_EQ(words(kLlama3Pattern, "a \n\n  \r\n   b"), Words({"a", " \n\n  \r\n", "  ", " b"}));
  EXPECT_EQ(words(kLlama3Pattern, "!\n\n\nb"), Words({"!\n\n\n", "b"}));
  EXPECT_EQ(words(kLlama3Pattern, "a\nb\rc"), Words({"a", "\n", "b", "\r", "c"}));
}

TEST(WordScanner, only_the_patterns_of_llama_3_and_qwen_ignore_the_case_of_contractions) {
  EXPECT_EQ(words(kGPT2Pattern, "he'Ll"), Words({"he", "'", "Ll"}));
  EXPECT_EQ(words(kLlama3Pattern, "he'LlX"), Words({"he", "'Ll", "X"}));
  // The long s (U+017F) counts as an s.
  EXPECT_EQ(words(kLlama3Pattern, "'\u017Fa"), Words({"'\u017F", "a"}));
  EXPECT_EQ(words(kQwenPattern, "it'sn't"), Words({"it", "'s", "n", "'t"}));
}

TEST(WordScanner, the_word_scanner_knows_letters_and_numbers_of_other_scripts_than_latin) {
  EXPECT_EQ(words(kGPT2Pattern, "\u00E9\u4E2D\uD55C\U00010400"),
            Words({"\u00E9\u4E2D\uD55C\U00010400"}));
  EXPECT_EQ(words(kGPT2Pattern, "\u0663\u00BD\u2167"), Words({"\u0663\u00BD\u2167"}));
  EXPECT_EQ(words(kLlama3Pattern, "\u0663\u00BD\u2167\u00B2"),
            Words({"\u0663\u00BD\u2167", "\u00B2"}));
  // A combining mark is neither a letter nor a number, nor is an emoji.
  EXPECT_EQ(words(kGPT2Pattern, "e\u0301a\U0001F600"), Words({"e", "\u0301", "a", "\U0001F600"}));
  EXPECT_EQ(words(kGPT2Pattern, "\u3000\u2028\u0085"), Words({"\u3000\u2028\u0085"}));
  EXPECT_EQ(words(kGPT2Pattern, "\u200B"), Words({"\u200B"}));
}

TEST(WordScanner, bytes_that_are_not_utf_8_are_neither_letters_nor_numbers_nor_spaces) {
  EXPECT_EQ(words(kGPT2Pattern, "a\xFF\xC3 b\xE4\xB8"), Words({"a", "\xFF\xC3", " b", "\xE4\xB8"}));
  EXPECT_EQ(words(kGPT2Pattern, "\xED\xA0\x80"), Words({"\xED\xA0\x80"}));  // U+D800, a surrogate
}

TEST(WordScanner, the_word_scanner_makes_a_word_of_text_between_two_matches) {
  EXPECT_EQ(words(R"(\p{N})", "ab12 c"), Words({"ab", "1", "2", " c"}));
  EXPECT_EQ(words(R"(\p{N}+)", "ab12 c"), Words({"ab", "12", " c"}));
}

TEST(WordScanner, the_error_about_a_pattern_quotes_the_alternative_that_is_not_supported) {
  const auto why = [](const std::string& pattern) {
    return error_of<std::runtime_error>([&] { WordScanner scanner(pattern); });
  };
  EXPECT_EQ(why(R"(\s+|\p{Lu}+|\p{N})"),
            R"(begins at "\p{Lu}+|\p{N}" with an alternative that is not known)");
  EXPECT_EQ(why(R"(\s+|)"), R"(begins at "" with an alternative that is not known)");
  EXPECT_EQ(why(R"(\p{N}{1,2})"),
            R"(begins at "\p{N}{1,2}" with an alternative that is not known)");
}

}  // namespace
}  // namespace fsdp
