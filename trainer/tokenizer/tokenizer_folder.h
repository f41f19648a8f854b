#pragma once

#include <cstdint>
#include <string>
#include <vector>

// This file has functions for the files of a tokenizer in a folder, as save_pretrained() of
// transformers writes them.
namespace fsdp {

inline const std::string kTokenizerFile = "tokenizer.json";
inline const std::string kTokenizerConfigFile = "tokenizer_config.json";
inline const std::string kGenerationConfigFile = "generation_config.json";

// Returns `path` or, if it is a folder, the path of the tokenizer.json in it. Throws
// std::runtime_error if there is neither a file nor a folder.
std::string tokenizer_at(const std::string& path);
// Returns the path of the tokenizer.json in the first of `folders` that has one, or "" if none has.
std::string tokenizer_in(const std::vector<std::string>& folders);
// Returns the path of the tokenizer.json that lies beside a checkpoint: in the folder `checkpoint`,
// or in the folder around it; "" if there is none.
std::string tokenizer_beside(const std::string& checkpoint);
// Returns whether a file written to `path` would replace the tokenizer at `tokenizer` (a
// tokenizer.json or a folder that has one), or a file in its folder that belongs to a tokenizer or
// to a model: one that ends in .json, .jinja, .model, .safetensors or .txt.
bool would_replace_tokenizer(const std::string& path, const std::string& tokenizer);

// Throws std::runtime_error, which names the file, unless `path` is a tokenizer.json or a folder
// that has one. The tokenizer may be of a kind that Tokenizer does not read.
void check_tokenizer(const std::string& path);

// Does what check_tokenizer() does, and also throws std::runtime_error, which names the file and
// says what to do:
// - if a token has an id that a model with `vocabulary` ids does not have;
// - if a file that copy_tokenizer() would copy too, or from which end_tokens_of_tokenizer() would
//   read the end of a text, is damaged or names such an id as the end of a text.
void check_tokenizer_of_model(const std::string& path, int64_t vocabulary);

// Returns the ids of the tokens at which a text ends, as the files beside a tokenizer tell them:
// end_tokens_in() of its folder or, if that is none, the id of the token whose text is eos_token of
// tokenizer_config.json or of special_tokens_map.json; none if no file tells it. `path`: a
// tokenizer.json or a folder that has one.
std::vector<int64_t> end_tokens_of_tokenizer(const std::string& path);

// Copies the tokenizer at `path`, a tokenizer.json or a folder that has one, into `folder`. Copies
// also the files that lie beside it and say which tokens begin and end a text:
// tokenizer_config.json, special_tokens_map.json and generation_config.json.
// Throws: what check_tokenizer() throws, and std::runtime_error if a file can't be copied.
void copy_tokenizer(const std::string& path, const std::string& folder);

// Returns the ids of the tokens at which a text of the model in `folder` ends; none if the folder
// does not say. Reads eos_token_id of generation_config.json or, if that file has none, of
// config.json. Throws std::runtime_error, which names the file, if the file can't be read, or if
// eos_token_id is neither an id nor a list of ids.
std::vector<int64_t> end_tokens_in(const std::string& folder);
// Returns eos_token, the text of the token that ends a text, of the tokenizer_config.json in
// `folder`; "" if the file or the member is missing. Throws std::runtime_error, which names the
// file, if the file can't be read or if eos_token is not a text.
std::string end_text_in(const std::string& folder);

}  // namespace fsdp
