#include <gtest/gtest.h>
#include <tokenizer/tokenizer.h>

#include <functional>
#include <stdexcept>

#include <common/expect_text.h>
#include "tokenizer_files.h"

namespace fsdp {
namespace {

using Json = nlohmann::json;

// Returns the error that Tokenizer throws for a tokenizer.json with this content, without the path
// with which the error begins.
std::string why(const std::string& content) {
  const TemporaryFolder folder;
  const std::string path = folder.write("tokenizer.json", content);
  const std::string error = error_of<std::runtime_error>([&] { Tokenizer tokenizer(path); });
  EXPECT_TRUE(error.starts_with(path + ": ")) << error;
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  return error.substr(std::min(error.size(), path.size() + 2));
}

// Returns the error that Tokenizer throws after `change` has changed a valid tokenizer.json.
std::string after(const std::function<void(Json&)>& change) {
  Json json = tokenizer_json({{"t", "h"}, {"th", "e"}});
  change(json);
  return why(json.dump());
}
// Returns the error that Tokenizer throws after one key of the model in a valid tokenizer.json was
// set to `value`.
std::string after_model(const std::string& key, const Json& value) {
  return after([&](Json& json) { json["model"][key] = value; });
}

const std::string kOtherWay =
    "; write the token ids with the package tokenizers, and pass them to train --tokens";
const std::string kAdvice =
    "only byte-level BPE is read, as of GPT-2, Llama 3 and Qwen" + kOtherWay;

TEST(TokenizerFile, a_tokenizer_json_that_is_missing_or_has_no_model_is_refused) {
  EXPECT_EQ(why(""), "is no JSON object");
  EXPECT_EQ(why("[]"), "is no JSON object");
  EXPECT_EQ(why("{}"), "model: is missing");
  EXPECT_EQ(why("{\"model\": 3}"), "model: is not an object");
  const TemporaryFolder folder;
  EXPECT_EQ(error_of<std::runtime_error>([&] { Tokenizer tokenizer(folder.path()); }),
            folder.path() + "/tokenizer.json: can't be read: No such file or directory");
}

TEST(TokenizerFile, a_tokenizer_json_whose_model_is_not_byte_level_bpe_is_refused) {
  EXPECT_EQ(after_model("type", "WordPiece"), "model.type: is \"WordPiece\"; " + kAdvice);
  EXPECT_EQ(after_model("type", "Unigram"), "model.type: is \"Unigram\"; " + kAdvice);
  EXPECT_EQ(after_model("type", 7), "model.type: is not a text");
  EXPECT_EQ(after_model("byte_fallback", true), "model.byte_fallback: is true; " + kAdvice);
  EXPECT_EQ(after_model("byte_fallback", "no"), "model.byte_fallback: is neither true nor false");
  EXPECT_EQ(after_model("end_of_word_suffix", "</w>"),
            "model.end_of_word_suffix: is \"</w>\"; " + kAdvice);
  EXPECT_EQ(after_model("continuing_subword_prefix", "##"),
            "model.continuing_subword_prefix: is \"##\"; " + kAdvice);
  EXPECT_EQ(after_model("dropout", 0.1),
            "model.dropout: is not null: it makes tokens random, which training and a prompt can't "
            "have");
}

TEST(TokenizerFile, a_tokenizer_json_with_an_invalid_vocabulary_is_refused) {
  EXPECT_EQ(after([](Json& json) { json["model"].erase("vocab"); }), "model.vocab: is missing");
  EXPECT_EQ(after_model("vocab", Json::array()), "model.vocab: is not an object");
  const auto after_id = [](const Json& id) {
    return after([&](Json& json) { json["model"]["vocab"]["the"] = id; });
  };
  const std::string kinds =
      "model.vocab.the: is not a token id, a whole number from 0 to 2147483647";
  EXPECT_EQ(after_id("3"), kinds);
  EXPECT_EQ(after_id(-1), kinds);
  EXPECT_EQ(after_id(1.5), kinds);
  EXPECT_EQ(after_id(int64_t{1} << 31), kinds);
  EXPECT_EQ(after_id(256), "model.vocab.the: has the id 256 of another token");
}

TEST(TokenizerFile, a_tokenizer_json_with_an_invalid_merge_is_refused) {
  EXPECT_EQ(after([](Json& json) { json["model"].erase("merges"); }), "model.merges: is missing");
  EXPECT_EQ(after_model("merges", "th"), "model.merges: is not an array");
  const auto after_merge = [](const Json& merge) {
    return after([&](Json& json) { json["model"]["merges"][1] = merge; });
  };
  const std::string not_two = ", and not two tokens with a space between them";
  EXPECT_EQ(after_merge("the"), "model.merges.1: is \"the\"" + not_two);
  EXPECT_EQ(after_merge("t h e"), "model.merges.1: is \"t h e\"" + not_two);
  EXPECT_EQ(after_merge({"t", "h", "e"}), "model.merges.1: has not two tokens");
  EXPECT_EQ(after_merge({"t", 1}), "model.merges.1.1: is not a text");
  EXPECT_EQ(after_merge(nullptr), "model.merges.1: is missing");
  EXPECT_EQ(after_merge({"th", "zz"}),
            "model.merges.1: has \"zz\", which model.vocab does not have");
  EXPECT_EQ(after_merge({"e", "h"}), "model.merges.1: has \"eh\", which model.vocab does not have");
}

TEST(TokenizerFile, a_tokenizer_json_with_an_unsupported_pre_tokenizer_is_refused) {
  const auto after_pre = [](const Json& pre) {
    return after([&](Json& json) { json["pre_tokenizer"] = pre; });
  };
  EXPECT_EQ(
      after_pre(nullptr),
      "pre_tokenizer: is null; only a pre_tokenizer of the type ByteLevel is read" + kOtherWay);
  EXPECT_EQ(after_pre({{"type", "Metaspace"}}),
            "pre_tokenizer.type: is Metaspace; only a pre_tokenizer that ends with ByteLevel is "
            "read" +
                kOtherWay);
  const Json byte_level = {{"type", "ByteLevel"}};
  const auto after_steps = [&](const Json& steps) {
    return after_pre({{"type", "Sequence"}, {"pretokenizers", steps}});
  };
  EXPECT_EQ(after_steps(Json::array()),
            "pre_tokenizer.pretokenizers: is empty; only a pre_tokenizer that ends with ByteLevel "
            "is read" +
                kOtherWay);
  EXPECT_EQ(after_steps({byte_level, byte_level}),
            "pre_tokenizer.pretokenizers.0.type: is ByteLevel, which is read only at the end" +
                kOtherWay);
  EXPECT_EQ(after_steps({{{"type", "Whitespace"}}, byte_level}),
            "pre_tokenizer.pretokenizers.0.type: is Whitespace; only Split, Digits and ByteLevel "
            "are read" +
                kOtherWay);
}

TEST(TokenizerFile, a_tokenizer_json_with_an_unsupported_split_pre_tokenizer_is_refused) {
  const auto after_split = [](const std::string& key, const Json& value) {
    Json split = {{"type", "Split"},
                  {"pattern", {{"Regex", R"(\s+)"}}},
                  {"behavior", "Isolated"},
                  {"invert", false}};
    split[key] = value;
    return after([&](Json& json) {
      json["pre_tokenizer"] = {{"type", "Sequence"},
                               {"pretokenizers", {split, {{"type", "ByteLevel"}}}}};
    });
  };
  const std::string key = "pre_tokenizer.pretokenizers.0.";
  EXPECT_EQ(after_split("behavior", "Removed"),
            key + "behavior: is Removed; only Isolated is read" + kOtherWay);
  EXPECT_EQ(after_split("invert", true), key + "invert: is true; only false is read" + kOtherWay);
  EXPECT_EQ(after_split("pattern", {{"String", " "}}), key + "pattern.Regex: is missing");
  EXPECT_EQ(after_split("pattern", {{"Regex", "[a-z]+"}}),
            key +
                "pattern.Regex: begins at \"[a-z]+\" with an alternative that is not known; only "
                "the alternatives of the patterns of GPT-2, Llama 3 and Qwen are read" +
                kOtherWay);
}

TEST(TokenizerFile, a_tokenizer_json_with_an_unsupported_normalizer_or_decoder_is_refused) {
  EXPECT_EQ(after([](Json& json) {
              json["normalizer"] = {{"type", "Lowercase"}};
            }),
            "normalizer.type: is Lowercase; only the normalizer NFC is read" + kOtherWay);
  EXPECT_EQ(after([](Json& json) {
              json["normalizer"] = {{"type", "Sequence"},
                                    {"normalizers", {{{"type", "NFC"}}, {{"type", "Strip"}}}}};
            }),
            "normalizer.normalizers.1.type: is Strip; only the normalizer NFC is read" + kOtherWay);
  EXPECT_EQ(after([](Json& json) { json.erase("decoder"); }),
            "decoder: is null, and not ByteLevel; " + kAdvice);
  EXPECT_EQ(after([](Json& json) { json["decoder"]["type"] = "Metaspace"; }),
            "decoder.type: is Metaspace, and not ByteLevel; " + kAdvice);
}

TEST(TokenizerFile, a_tokenizer_json_with_an_invalid_added_token_is_refused) {
  const auto after_added = [](const Json& entry) {
    return after([&](Json& json) { json["added_tokens"] = {added_token(300, "<s>"), entry}; });
  };
  EXPECT_EQ(after([](Json& json) { json["added_tokens"] = 3; }), "added_tokens: is not an array");
  EXPECT_EQ(after_added("<e>"), "added_tokens.1: is not an object");
  EXPECT_EQ(after_added({{"id", 301}}), "added_tokens.1.content: is missing");
  EXPECT_EQ(after_added({{"content", "<e>"}}),
            "added_tokens.1.id: is not a token id, a whole number from 0 to 2147483647");
  EXPECT_EQ(after_added(added_token(300, "<e>")),
            "added_tokens.1: has the id 300 of another token");
  EXPECT_EQ(after_added(added_token('a', "<e>")), "added_tokens.1: has the id 97 of another token");
  EXPECT_EQ(after_added(added_token(301, "<s>")),
            "added_tokens.1: gives \"<s>\" the id 301, and another entry gives it 300");
  EXPECT_EQ(after_added(added_token(301, "the")),
            "added_tokens.1: gives \"the\" the id 301, and model.vocab gives it 257");
}

TEST(TokenizerFile, a_tokenizer_json_with_an_unsupported_post_processor_is_refused) {
  const auto after_post = [](const Json& post) {
    return after([&](Json& json) { json["post_processor"] = post; });
  };
  EXPECT_EQ(after_post({{"type", "BertProcessing"}}),
            "post_processor.type: is BertProcessing; only ByteLevel and TemplateProcessing are "
            "read" +
                kOtherWay);
  const auto after_template = [&](const Json& single) {
    return after_post({{"type", "TemplateProcessing"},
                       {"single", single},
                       {"special_tokens", {{"<s>", {{"ids", {300}}}}}}});
  };
  const Json text = {{"Sequence", {{"id", "A"}}}};
  EXPECT_EQ(after_template(Json::array()),
            "post_processor.single: has no Sequence, so the text is left out");
  EXPECT_EQ(after_template({text, text}),
            "post_processor.single.1: is neither a SpecialToken nor the only Sequence");
  EXPECT_EQ(after_template({{{"SpecialToken", {{"id", "<e>"}}}}, text}),
            "post_processor.single.0.SpecialToken.id: is \"<e>\", which "
            "post_processor.special_tokens does not have");
  EXPECT_EQ(after_template({{{"SpecialToken", {{"id", "<s>"}}}}, text}),
            "post_processor: adds the id 300, which no token has");
}

TEST(TokenizerFile, an_error_shows_a_json_key_with_control_characters_in_one_line) {
  EXPECT_EQ(after([](Json& json) { json["model"]["vocab"]["a\n\x1B[2J"] = -1; }),
            "model.vocab.a??[2J: is not a token id, a whole number from 0 to 2147483647");
}

TEST(TokenizerFile, a_tokenizer_json_that_is_cut_off_anywhere_is_refused) {
  const std::string whole = tokenizer_json({{"t", "h"}}).dump();
  for (size_t size = 0; size < whole.size(); size += 7)
    EXPECT_EQ(why(whole.substr(0, size)), "is no JSON object") << size;
}

// Replaces each value of a tokenizer.json by values of other kinds, one at a time. The changed file
// must be read, or refused with an error of one line.
TEST(TokenizerFile, no_replaced_value_in_a_tokenizer_json_crashes_the_reader) {
  Json whole = tokenizer_json({{"t", "h"}});
  whole["model"]["vocab"] = {{"t", 1}, {"h", 2}, {"th", 3}};
  whole["added_tokens"] = Json::array({added_token(4, "<s>")});
  whole["pre_tokenizer"] = {{"type", "Sequence"},
                            {"pretokenizers",
                             {{{"type", "Split"},
                               {"pattern", {{"Regex", R"(\s+)"}}},
                               {"behavior", "Isolated"},
                               {"invert", false}},
                              {{"type", "ByteLevel"}, {"use_regex", false}}}}};
  const Json places = whole.flatten();
  int refused = 0;
  for (const auto& [place, value] : places.items()) {
    for (Json::json_pointer key(place); !key.empty(); key = key.parent_pointer()) {
      for (const Json& other : {Json(), Json(-1), Json(1e300), Json("x"), Json(true), Json::array(),
                                Json::object(), Json({1, 2})}) {
        Json changed = whole;
        changed[key] = other;
        try {
          tokenizer_of(changed).encode("th<s> t");
        } catch (const std::runtime_error& error) {
          ++refused;
          EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
        }
      }
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace fsdp
