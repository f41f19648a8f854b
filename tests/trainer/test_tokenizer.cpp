#include <gtest/gtest.h>
#include <tokenizer/tokenizer.h>

#include <random>
#include <stdexcept>

#include <common/expect_text.h>
#include "tokenizer_files.h"

namespace fsdp {
namespace {

using Ids = std::vector<int64_t>;

const std::vector<std::pair<std::string, std::string>> kMerges{
    {"t", "h"}, {"th", "e"}, {" ", "the"}, {"i", "n"}, {"n", "g"}, {"in", "g"}};
constexpr int64_t kTh = 256, kThe = 257, kSpaceThe = 258, kIn = 259, kNg = 260, kIng = 261;

Ids bytes(const std::string& text) {
  Ids ids;
  for (const char byte : text)
    ids.push_back(static_cast<unsigned char>(byte));
  return ids;
}

TEST(Tokenizer, the_tokenizer_merges_pairs_in_the_order_of_the_list_of_merges) {
  const Tokenizer tokenizer = tokenizer_of(tokenizer_json(kMerges));
  EXPECT_EQ(tokenizer.encode("the the"), Ids({kThe, kSpaceThe}));
  EXPECT_EQ(tokenizer.encode("thing"), Ids({kTh, kIng}));
  EXPECT_EQ(tokenizer.encode("ngi"), Ids({kNg, 'i'}));
  EXPECT_EQ(tokenizer.encode("in"), Ids({kIn}));
  EXPECT_EQ(tokenizer.encode(""), Ids());
  EXPECT_EQ(tokenizer.size(), 262);
}

TEST(Tokenizer, the_tokenizer_merges_the_leftmost_of_equal_pairs_first) {
  const Tokenizer tokenizer = tokenizer_of(tokenizer_json({{"a", "a"}, {"aa", "a"}}));
  EXPECT_EQ(tokenizer.encode("aaa"), Ids({257}));
  EXPECT_EQ(tokenizer.encode("aaaaa"), Ids({256, 257}));
}

// In the first tokenizer, the merge of "bc" makes the candidate "ab" out of date. In the second,
// the merge of "cd" makes "bc" out of date.
TEST(Tokenizer, the_tokenizer_does_not_merge_a_pair_that_an_earlier_merge_has_changed) {
  EXPECT_EQ(tokenizer_of(tokenizer_json({{"b", "c"}, {"a", "b"}})).encode("abc"), Ids({'a', 256}));
  EXPECT_EQ(tokenizer_of(tokenizer_json({{"c", "d"}, {"b", "c"}, {"a", "b"}})).encode("abcd"),
            Ids({258, 256}));
  const Tokenizer tokenizer = tokenizer_of(tokenizer_json({{"b", "c"}, {"a", "b"}, {"a", "bc"}}));
  EXPECT_EQ(tokenizer.encode("abc"), Ids({258}));
}

TEST(Tokenizer, the_tokenizer_merges_no_pair_across_the_end_of_a_word) {
  const Tokenizer tokenizer = tokenizer_of(tokenizer_json({{"a", " "}, {"a", "!"}}));
  EXPECT_EQ(tokenizer.encode("a a!"), bytes("a a!"));
}

TEST(Tokenizer, with_ignore_merges_a_word_that_is_in_the_vocabulary_becomes_one_token) {
  nlohmann::json json = tokenizer_json({{"a", "b"}, {"b", "c"}});
  json["model"]["vocab"]["abc"] = 300;
  EXPECT_EQ(tokenizer_of(json).encode("abc"), Ids({256, 'c'}));
  json["model"]["ignore_merges"] = true;
  EXPECT_EQ(tokenizer_of(json).encode("abc abc"), Ids({300, ' ', 256, 'c'}));
}

TEST(Tokenizer, merges_written_as_texts_give_the_same_ids_as_merges_written_as_arrays) {
  nlohmann::json json = tokenizer_json(kMerges);
  for (nlohmann::json& merge : json["model"]["merges"])
    merge = merge[0].get<std::string>() + ' ' + merge[1].get<std::string>();
  json["model"].erase("type");  // older files do not state the type of the model
  EXPECT_EQ(tokenizer_of(json).encode(" thing"), Ids({' ', kTh, kIng}));
}

TEST(Tokenizer, decoding_the_encoded_ids_of_random_bytes_returns_the_bytes) {
  const Tokenizer tokenizer = tokenizer_of(tokenizer_json(kMerges));
  std::mt19937 random(7);  // NOLINT: every run of the test draws the same numbers
  const std::string common = "the ing\n'\xC3\xA9 ";
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (size_t length = random() % 40; length > 0; --length)
      text +=
          random() % 3 == 0 ? static_cast<char>(random() % 256) : common[random() % common.size()];
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
}

// If the time grew with the square of the word's length, this test would take very long.
TEST(Tokenizer, the_tokenizer_encodes_a_word_of_one_megabyte) {
  const Tokenizer tokenizer = tokenizer_of(tokenizer_json({{"a", "a"}, {"aa", "aa"}}));
  EXPECT_EQ(tokenizer.encode(std::string(1 << 20, 'a')), Ids(1 << 18, 257));
}

TEST(Tokenizer, an_added_token_is_found_before_the_text_is_split) {
  nlohmann::json json = tokenizer_json(kMerges);
  json["added_tokens"] = {added_token(300, "<|end|>"), added_token(301, "<|end|>the")};
  const Tokenizer tokenizer = tokenizer_of(json);
  EXPECT_EQ(tokenizer.encode("in<|end|>in"), Ids({kIn, 300, kIn}));
  // If two added tokens begin at the same place, the tokenizer uses the longer one.
  EXPECT_EQ(tokenizer.encode("<|end|>the<|end|>"), Ids({301, 300}));
  EXPECT_EQ(tokenizer.encode("<|end|"), bytes("<|end|"));
  EXPECT_EQ(tokenizer.decode({300, kIn}), "<|end|>in");
  EXPECT_EQ(tokenizer.size(), 302);
}

TEST(Tokenizer, an_added_token_with_lstrip_or_rstrip_includes_the_spaces_beside_it) {
  nlohmann::json json = tokenizer_json();
  json["added_tokens"] = {added_token(300, "<l>"), added_token(301, "<r>")};
  json["added_tokens"][0]["lstrip"] = true;
  json["added_tokens"][1]["rstrip"] = true;
  const Tokenizer tokenizer = tokenizer_of(json);
  EXPECT_EQ(tokenizer.encode("a \n<l> b"), Ids({'a', 300, ' ', 'b'}));
  EXPECT_EQ(tokenizer.encode("a <r> \u3000b"), Ids({'a', ' ', 301, 'b'}));
  EXPECT_EQ(tokenizer.encode("<r>  <l>"), Ids({301, 300}));
}

TEST(Tokenizer, an_added_token_with_single_word_is_not_found_inside_a_word) {
  nlohmann::json json = tokenizer_json();
  json["added_tokens"] = nlohmann::json::array({added_token(300, "go")});
  json["added_tokens"][0]["single_word"] = true;
  const Tokenizer tokenizer = tokenizer_of(json);
  EXPECT_EQ(tokenizer.encode("go go!"), Ids({300, ' ', 300, '!'}));
  EXPECT_EQ(tokenizer.encode("ago"), bytes("ago"));
  EXPECT_EQ(tokenizer.encode("gone go_"), bytes("gone go_"));
  EXPECT_EQ(tokenizer.encode("\u00E9go"), bytes("\u00E9go"));
}

TEST(Tokenizer, nfc_normalizes_the_text_around_added_tokens) {
  nlohmann::json json = tokenizer_json({{"\xC3", "\xA9"}});
  json["normalizer"] = {{"type", "NFC"}};
  json["added_tokens"] = {added_token(300, "e\u0301x"), added_token(301, "e\u0301y")};
  json["added_tokens"][1]["normalized"] = true;
  const Tokenizer tokenizer = tokenizer_of(json);
  EXPECT_EQ(tokenizer.encode("e\u0301"), Ids({256}));
  EXPECT_EQ(tokenizer.encode("e\u0301x\u00E9x"), Ids({300, 256, 'x'}));
  EXPECT_EQ(tokenizer.encode("e\u0301y\u00E9y"), Ids({301, 301}));
}

TEST(Tokenizer, add_prefix_space_adds_a_space_before_each_part_that_begins_without_one) {
  nlohmann::json json = tokenizer_json(kMerges);
  json["added_tokens"] = nlohmann::json::array({added_token(300, "<|end|>")});
  json["pre_tokenizer"]["add_prefix_space"] = true;
  const Tokenizer tokenizer = tokenizer_of(json);
  EXPECT_EQ(tokenizer.encode("the<|end|>the"), Ids({kSpaceThe, 300, kSpaceThe}));
  EXPECT_EQ(tokenizer.encode(" the"), Ids({kSpaceThe}));
  EXPECT_EQ(tokenizer.encode("\nthe"), Ids({' ', '\n', kThe}));
}

TEST(Tokenizer, a_digits_pre_tokenizer_splits_digits_before_words_are_split) {
  nlohmann::json json = tokenizer_json({{"1", "2"}, {" ", "1"}});
  const nlohmann::json bytes_level = json["pre_tokenizer"];
  EXPECT_EQ(tokenizer_of(json).encode("a 12"), Ids({'a', ' ', 256}));
  json["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}}, bytes_level}}};
  EXPECT_EQ(tokenizer_of(json).encode("a 12"), bytes("a 12"));
}

TEST(Tokenizer, a_template_post_processor_puts_special_tokens_around_the_text) {
  nlohmann::json json = tokenizer_json();
  json["added_tokens"] = {added_token(300, "<s>"), added_token(301, "</s>")};
  const auto special = [](const char* name) {
    return nlohmann::json{{"SpecialToken", {{"id", name}, {"type_id", 0}}}};
  };
  const nlohmann::json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const nlohmann::json only = {
      {"type", "TemplateProcessing"},
      {"single", {special("<s>"), text, special("</s>")}},
      {"special_tokens", {{"<s>", {{"ids", {300}}}}, {"</s>", {{"ids", {301}}}}}}};
  json["post_processor"] = {{"type", "Sequence"}, {"processors", {{{"type", "ByteLevel"}}, only}}};
  const Tokenizer tokenizer = tokenizer_of(json);
  EXPECT_EQ(tokenizer.encode("a"), Ids({300, 'a', 301}));
  EXPECT_EQ(tokenizer.encode("a", Tokenizer::Template::leave_out), Ids({'a'}));
}

TEST(Tokenizer, the_tokenizer_throws_for_a_byte_that_has_no_token) {
  nlohmann::json json = tokenizer_json();
  json["model"]["vocab"].erase(letters_of("\xC3"));
  const Tokenizer tokenizer = tokenizer_of(json);
  EXPECT_EQ(tokenizer.encode("abc"), bytes("abc"));
  EXPECT_EQ(error_of<std::runtime_error>([&] { tokenizer.encode("caf\u00E9"); }),
            "the text has the byte 195, for which the tokenizer has no token");
}

TEST(Tokenizer, decoding_ids_that_have_no_token_gives_no_bytes) {
  const Tokenizer tokenizer = tokenizer_of(tokenizer_json());
  EXPECT_EQ(tokenizer.decode({'a', 256, -1, int64_t{1} << 40, 'b'}), "ab");
}

TEST(Tokenizer, an_added_token_decodes_to_its_content_even_if_this_looks_like_encoded_bytes) {
  nlohmann::json json = tokenizer_json();
  json["added_tokens"] = nlohmann::json::array({added_token(300, "\u0120\u00E9")});
  EXPECT_EQ(tokenizer_of(json).decode({300}), "\u0120\u00E9");
}

}  // namespace
}  // namespace fsdp
