#include <base/text.h>
#include <state/files.h>
#include <state/untrusted_json.h>
#include <tokenizer/byte_letters.h>
#include <tokenizer/tokenizer_file.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

constexpr int64_t kLongest = 500'000'000;  // the most bytes of a tokenizer.json
const std::string kWhatIsRead = "only byte-level BPE is read, as of GPT-2, Llama 3 and Qwen";

// Throws std::runtime_error unless `json` is missing, is null, or is the text `text`.
void require_text(const JsonValue& json, const std::string& text) {
  if (!json.is_null() && json.text() != text)
    json.refuse_kind("is \"" + one_line(json.text()) + "\"; " + kWhatIsRead);
}

void check_model(const JsonValue& model) {
  if (model.is_null()) model.refuse("is missing");
  require_text(model.member("type"), "BPE");
  require_text(model.member("continuing_subword_prefix"), "");
  require_text(model.member("end_of_word_suffix"), "");
  if (model.member("byte_fallback").flag(false))
    model.member("byte_fallback").refuse_kind("is true; " + kWhatIsRead);
  const JsonValue dropout = model.member("dropout");
  if (!dropout.is_null() && dropout.json() != 0)
    dropout.refuse("is not null: it makes tokens random, which training and a prompt can't have");
}

void read_vocabulary(const JsonValue& json, TokenizerFile& file) {
  if (!json.json().is_object()) json.refuse(json.is_null() ? "is missing" : "is not an object");
  for (const auto& [token, number] : json.json().items()) {
    const JsonValue entry(number, json.key() + '.' + token);
    const int32_t id = entry.id();
    const std::optional<std::string> bytes = bytes_of_letters(token);
    // If a token has a character that stands for no byte, no text has this token. It still gets an
    // entry in bytes_of_id, because a model may return its id.
    if (bytes) file.vocabulary[*bytes] = id;
    if (!file.bytes_of_id.emplace(id, bytes.value_or(token)).second)
      entry.refuse("has the id " + std::to_string(id) + " of another token");
  }
}

// Returns the two tokens of `merge`, which is written as "a b" or as ["a", "b"].
std::pair<std::string, std::string> pair_of(const JsonValue& merge) {
  if (merge.json().is_array()) {
    if (merge.size() != 2) merge.refuse("has not two tokens");
    return {merge.item(0).text(), merge.item(1).text()};
  }
  const std::string text = merge.text();
  const size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
    merge.refuse("is \"" + one_line(text) + "\", and not two tokens with a space between them");
  return {text.substr(0, space), text.substr(space + 1)};
}

void read_merges(const JsonValue& json, const nlohmann::json& vocabulary, TokenizerFile& file) {
  if (json.is_null()) json.refuse("is missing");
  for (size_t i = 0; i < json.size(); ++i) {
    const JsonValue merge = json.item(i);
    const auto [left, right] = pair_of(merge);
    const auto id_of = [&](const std::string& token) {
      const auto found = vocabulary.find(token);
      if (found == vocabulary.end())
        merge.refuse("has \"" + one_line(token) + "\", which model.vocab does not have");
      return found->get<int32_t>();
    };
    file.merges.push_back({id_of(left), id_of(right), id_of(left + right)});
  }
}

// Returns whether the normalizer `json` is NFC, or a Sequence with NFC. Throws if it is of another
// type.
bool read_normalizer(const JsonValue& json) {
  if (json.is_null()) return false;
  const JsonValue type = json.member("type");
  if (type.text() == "NFC") return true;
  if (type.text() != "Sequence")
    type.refuse_kind("is " + one_line(type.text()) + "; only the normalizer NFC is read");
  bool normalizes = false;
  const JsonValue all = json.member("normalizers");
  for (size_t i = 0; i < all.size(); ++i)
    normalizes |= read_normalizer(all.item(i));
  return normalizes;
}

void check_decoder(const JsonValue& json) {
  if (json.is_null()) json.refuse_kind("is null, and not ByteLevel; " + kWhatIsRead);
  JsonValue type = json.member("type");
  if (type.text() == "Sequence") {
    const JsonValue all = json.member("decoders");
    if (all.size() == 1) return check_decoder(all.item(0));
  }
  if (type.text() != "ByteLevel")
    type.refuse_kind("is " + one_line(type.text()) + ", and not ByteLevel; " + kWhatIsRead);
}

AddedToken read_added_token(const JsonValue& json) {
  const bool normalized = !json.member("special").flag(false);
  return {.content = json.member("content").text(),
          .id = json.member("id").id(),
          .single_word = json.member("single_word").flag(false),
          .lstrip = json.member("lstrip").flag(false),
          .rstrip = json.member("rstrip").flag(false),
          .normalized = json.member("normalized").flag(normalized)};
}

void read_added_tokens(const JsonValue& json, const nlohmann::json& vocabulary,
                       TokenizerFile& file) {
  if (json.is_null()) return;
  std::unordered_map<std::string, int32_t> ids;
  for (size_t i = 0; i < json.size(); ++i) {
    const JsonValue entry = json.item(i);
    const AddedToken token = read_added_token(entry);
    const auto refuse = [&](int32_t other, const std::string& where) {
      entry.refuse("gives \"" + one_line(token.content) + "\" the id " + std::to_string(token.id) +
                   ", and " + where + " gives it " + std::to_string(other));
    };
    const auto known = vocabulary.find(token.content);
    if (known != vocabulary.end() && known->get<int32_t>() != token.id)
      refuse(known->get<int32_t>(), "model.vocab");
    const auto [own, is_new] = ids.emplace(token.content, token.id);
    if (own->second != token.id) refuse(own->second, "another entry");
    if (!is_new) continue;
    // The bytes of an added token are its content as it is written, even if the content has letters
    // that stand for other bytes in the vocabulary.
    const bool id_is_new = file.bytes_of_id.insert_or_assign(token.id, token.content).second;
    if (!id_is_new && known == vocabulary.end())
      entry.refuse("has the id " + std::to_string(token.id) + " of another token");
    file.added_tokens.push_back(token);
  }
}

// Appends the ids of the special token `name` to `into`. `specials`: the special_tokens of a
// TemplateProcessing.
void add_special(const JsonValue& specials, const JsonValue& name, std::vector<int32_t>& into) {
  const JsonValue special = specials.member(name.text());
  if (special.is_null())
    name.refuse("is \"" + one_line(name.text()) + "\", which " + specials.key() + " does not have");
  const JsonValue ids = special.member("ids");
  for (size_t i = 0; i < ids.size(); ++i)
    into.push_back(ids.item(i).id());
}

// Reads the template that a TemplateProcessing has for a single text: special tokens, the text
// (Sequence A), special tokens.
void read_template(const JsonValue& json, TokenizerFile& file) {
  const JsonValue parts = json.member("single");
  std::vector<int32_t> before, after;
  bool has_text = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    const JsonValue part = parts.item(i);
    const JsonValue special = part.member("SpecialToken"), text = part.member("Sequence");
    if (!special.is_null()) {
      add_special(json.member("special_tokens"), special.member("id"), has_text ? after : before);
    } else if (text.is_null() || std::exchange(has_text, true)) {
      part.refuse("is neither a SpecialToken nor the only Sequence");
    }
  }
  if (!has_text) parts.refuse("has no Sequence, so the text is left out");
  file.before.insert(file.before.begin(), before.begin(), before.end());
  file.after.insert(file.after.end(), after.begin(), after.end());
}

void read_post_processor(const JsonValue& json, TokenizerFile& file) {
  if (json.is_null()) return;
  const JsonValue type = json.member("type");
  const std::string name = type.text();
  if (name == "TemplateProcessing") return read_template(json, file);
  if (name == "ByteLevel") return;  // as a post-processor, ByteLevel adds and changes no token
  if (name != "Sequence")
    type.refuse_kind("is " + one_line(name) + "; only ByteLevel and TemplateProcessing are read");
  const JsonValue all = json.member("processors");
  for (size_t i = 0; i < all.size(); ++i)
    read_post_processor(all.item(i), file);
}

TokenizerFile read(const JsonValue& json) {
  const JsonValue model = json.member("model");
  check_model(model);
  check_decoder(json.member("decoder"));
  TokenizerFile file{.ignore_merges = model.member("ignore_merges").flag(false),
                     .nfc = read_normalizer(json.member("normalizer")),
                     .pre_tokenizer = PreTokenizer(json.member("pre_tokenizer"))};
  const JsonValue vocabulary = model.member("vocab");
  read_vocabulary(vocabulary, file);
  read_merges(model.member("merges"), vocabulary.json(), file);
  read_added_tokens(json.member("added_tokens"), vocabulary.json(), file);
  read_post_processor(json.member("post_processor"), file);
  if (file.bytes_of_id.empty()) vocabulary.refuse("is empty");
  for (const auto* ids : {&file.before, &file.after})
    for (const int32_t id : *ids)
      if (!file.bytes_of_id.contains(id))
        json.member("post_processor")
            .refuse("adds the id " + std::to_string(id) + ", which no token has");
  return file;
}

}  // namespace

TokenizerFile read_tokenizer_file(const std::string& path) {
  const std::string text = read_text(path, kLongest);  // errors of read_text() begin with the path
  refuse_lfs_pointer(path, text);
  try {
    const auto json = read_json_object<nlohmann::json>(text);
    return read(JsonValue(json, ""));
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(path + ": " + error.what());
  }
}

}  // namespace fsdp
