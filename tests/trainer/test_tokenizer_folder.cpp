#include <base/whole_file.h>
#include <gtest/gtest.h>
#include <tokenizer/tokenizer_folder.h>

#include <filesystem>

#include <common/expect_text.h>
#include "tokenizer_files.h"

namespace fsdp {
namespace {

using Ids = std::vector<int64_t>;

TEST(TokenizerFolder, the_end_tokens_are_those_of_generation_config_json_or_else_of_config_json) {
  const TemporaryFolder folder;
  EXPECT_EQ(end_tokens_in(folder.path()), Ids());
  folder.write("config.json", R"({"eos_token_id": 7})");
  EXPECT_EQ(end_tokens_in(folder.path()), Ids({7}));
  folder.write("generation_config.json", R"({"eos_token_id": null})");
  EXPECT_EQ(end_tokens_in(folder.path()), Ids({7}));
  folder.write("generation_config.json", R"({"eos_token_id": [3, 5]})");
  EXPECT_EQ(end_tokens_in(folder.path()), Ids({3, 5}));
}

TEST(TokenizerFolder, an_eos_token_id_that_is_no_token_id_is_refused) {
  const TemporaryFolder folder;
  for (const std::string value : {"\"<|end|>\"", "-1", "1.5", "[1, \"a\"]", "{}"}) {
    const auto path = folder.write("config.json", "{\"eos_token_id\": " + value + "}");
    EXPECT_EQ(error_of<std::runtime_error>([&] { end_tokens_in(folder.path()); }),
              path + ": eos_token_id is neither an id nor a list of ids")
        << value;
  }
  const auto path = folder.write("config.json", "[]");
  EXPECT_EQ(error_of<std::runtime_error>([&] { end_tokens_in(folder.path()); }),
            path + ": is no JSON object");
}

TEST(TokenizerFolder, the_end_text_is_the_eos_token_of_tokenizer_config_json) {
  const TemporaryFolder folder;
  EXPECT_EQ(end_text_in(folder.path()), "");
  folder.write("tokenizer_config.json", R"({"eos_token": "<|end|>"})");
  EXPECT_EQ(end_text_in(folder.path()), "<|end|>");
  folder.write("tokenizer_config.json", R"({"eos_token": {"content": "</s>"}})");
  EXPECT_EQ(end_text_in(folder.path()), "</s>");
  const auto path = folder.write("tokenizer_config.json", R"({"eos_token": 5})");
  EXPECT_EQ(error_of<std::runtime_error>([&] { end_text_in(folder.path()); }),
            path + ": eos_token is not a text");
}

TEST(TokenizerFolder, copy_tokenizer_also_copies_tokenizer_config_and_the_end_tokens) {
  const TemporaryFolder folder, into;
  const std::string json = tokenizer_json().dump();
  const auto file = folder.write("mine.json", json);
  folder.write("tokenizer.json", json + ' ');
  folder.write("tokenizer_config.json", "{}");
  folder.write("generation_config.json", R"({"eos_token_id": 5})");
  folder.write("vocab.json", "{}");
  copy_tokenizer(file, into.path());
  EXPECT_EQ(content_of(into.path() + "/tokenizer.json"), json);
  EXPECT_EQ(content_of(into.path() + "/tokenizer_config.json"), "{}");
  EXPECT_EQ(end_tokens_in(into.path()), Ids({5}));
  EXPECT_FALSE(std::filesystem::exists(into.path() + "/special_tokens_map.json"));
  EXPECT_FALSE(std::filesystem::exists(into.path() + "/vocab.json"));
  const TemporaryFolder other;
  copy_tokenizer(folder.path(), other.path());
  EXPECT_EQ(content_of(other.path() + "/tokenizer.json"), json + ' ');
}

TEST(TokenizerFolder, a_tokenizer_with_an_id_that_the_model_does_not_have_is_refused) {
  const TemporaryFolder folder;
  const std::string way =
      ", and the model has only those below 257; give the tokenizer of the "
      "model (--tokenizer)";
  auto json = tokenizer_json({{"t", "h"}});
  const auto path = folder.write("tokenizer.json", json.dump());
  EXPECT_NO_THROW(check_tokenizer_of_model(folder.path(), 257));
  json["added_tokens"].push_back(added_token(300, "<|end|>"));
  folder.write("tokenizer.json", json.dump());
  EXPECT_EQ(error_of<std::runtime_error>([&] { check_tokenizer_of_model(path, 257); }),
            path + ": a token has the id 300" + way);
  EXPECT_NO_THROW(check_tokenizer_of_model(path, 301));
  nlohmann::json unigram{{"type", "Unigram"}, {"vocab", nlohmann::json::array()}};
  for (int id = 0; id < 258; ++id)
    unigram["vocab"].push_back({"token" + std::to_string(id), -1.0});
  folder.write("tokenizer.json", nlohmann::json{{"model", unigram}}.dump());
  EXPECT_EQ(error_of<std::runtime_error>([&] { check_tokenizer_of_model(path, 257); }),
            path + ": a token has the id 257" + way);
}

TEST(TokenizerFolder, a_damaged_file_beside_a_tokenizer_is_refused) {
  for (const std::string name :
       {"generation_config.json", "tokenizer_config.json", "special_tokens_map.json"}) {
    const TemporaryFolder folder;
    folder.write("tokenizer.json", tokenizer_json().dump());
    const auto path = folder.write(name, "{\"eos_token_id\": 5");
    EXPECT_EQ(error_of<std::runtime_error>([&] { check_tokenizer_of_model(folder.path(), 256); }),
              path + ": is no JSON object; it lies beside the tokenizer: mend it, or remove it");
  }
  const TemporaryFolder folder;
  folder.write("tokenizer.json", tokenizer_json().dump());
  for (const auto& [value, reason] :
       {std::pair<std::string, std::string>("\"a\"", " is neither an id nor a list of ids"),
        {"[5, 256]",
         " has the id 256, and the model has only those below "
         "256"}}) {
    const auto path = folder.write("generation_config.json", "{\"eos_token_id\": " + value + "}");
    EXPECT_EQ(
        error_of<std::runtime_error>([&] { check_tokenizer_of_model(folder.path(), 256); }),
        path + ": eos_token_id" + reason + "; it lies beside the tokenizer: mend it, or remove it");
  }
}

TEST(TokenizerFolder, the_end_tokens_of_a_tokenizer_are_those_that_the_files_beside_it_name) {
  const TemporaryFolder folder;
  auto json = tokenizer_json();
  json["added_tokens"].push_back(added_token(257, "<|end|>"));
  const auto path = folder.write("tokenizer.json", json.dump());
  EXPECT_EQ(end_tokens_of_tokenizer(path), Ids());
  folder.write("special_tokens_map.json", R"({"eos_token": {"content": "a"}})");
  EXPECT_EQ(end_tokens_of_tokenizer(path), Ids({'a'}));
  folder.write("tokenizer_config.json", R"({"eos_token": "<|end|>"})");
  EXPECT_EQ(end_tokens_of_tokenizer(path), Ids({257}));
  folder.write("config.json", R"({"eos_token_id": 7})");
  EXPECT_EQ(end_tokens_of_tokenizer(path), Ids({7}));
  folder.write("generation_config.json", R"({"eos_token_id": [3, 5]})");
  EXPECT_EQ(end_tokens_of_tokenizer(folder.path()), Ids({3, 5}));
}

TEST(TokenizerFolder, a_file_that_is_not_a_tokenizer_json_is_refused) {
  const TemporaryFolder folder;
  EXPECT_CONTAINS(error_of<std::runtime_error>([&] { check_tokenizer(folder.path()); }),
                  folder.path() + "/tokenizer.json: ");
  for (const std::string text : {"{}", "[1]", "no JSON"}) {
    const auto path = folder.write("config.json", text);
    EXPECT_EQ(error_of<std::runtime_error>([&] { check_tokenizer(path); }),
              path + ": is not a tokenizer.json, which has a model");
  }
}

TEST(TokenizerFolder,
     a_tokenizer_that_is_given_as_init_takes_a_folder_is_refused_with_the_right_form) {
  const TemporaryFolder folder;
  EXPECT_EQ(error_of<std::runtime_error>([&] { tokenizer_at("hf:" + folder.path()); }),
            "hf:" + folder.path() + ": give it without hf:, as " + folder.path());
}

TEST(TokenizerFolder, tokenizer_beside_looks_in_the_checkpoint_and_in_the_folder_around_it) {
  const TemporaryFolder folder;
  folder.write("step-000001/checkpoint.json", "{}");
  const std::string step = folder.path() + "/step-000001";
  EXPECT_EQ(tokenizer_beside(step), "");
  const auto of_all = folder.write("tokenizer.json", "{}");
  EXPECT_EQ(tokenizer_beside(step), of_all);
  EXPECT_EQ(tokenizer_beside(step + "/"), of_all);
  const auto own = folder.write("step-000001/tokenizer.json", "{}");
  EXPECT_EQ(tokenizer_beside(step), own);
}

TEST(TokenizerFolder, would_replace_tokenizer_is_true_for_the_files_of_a_tokenizer_or_a_model) {
  const TemporaryFolder folder;
  const auto file = folder.write("tokenizer.json", "{}"),
             weights = folder.write("a.safetensors", "");
  const auto ids = folder.write("book.bin", "ids"), link = folder.path() + "/link";
  std::filesystem::create_symlink("tokenizer.json", link);
  const TemporaryFolder other;
  std::filesystem::create_symlink(folder.write("config.json", "{}"), other.path() + "/link");
  for (const std::string& tokenizer : {folder.path(), file, link}) {
    EXPECT_TRUE(would_replace_tokenizer(file, tokenizer));
    EXPECT_TRUE(would_replace_tokenizer(link, tokenizer));
    EXPECT_TRUE(would_replace_tokenizer(weights, tokenizer));
    EXPECT_TRUE(would_replace_tokenizer(other.path() + "/link", tokenizer));
    EXPECT_FALSE(would_replace_tokenizer(ids, tokenizer));
    EXPECT_FALSE(would_replace_tokenizer(folder.path() + "/new.json", tokenizer));
    EXPECT_FALSE(would_replace_tokenizer("/dev/null", tokenizer));
  }
}

}  // namespace
}  // namespace fsdp
