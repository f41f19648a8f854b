#include <base/whole_file.h>
#include <state/files.h>
#include <state/folder_kind.h>
#include <state/untrusted_json.h>
#include <tokenizer/tokenizer_folder.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <stdexcept>

namespace fsdp {
namespace {

namespace fs = std::filesystem;

// kLongestTokenizer: the most bytes of a tokenizer.json that is read. kLongestSettings: the most
// bytes of any other JSON file that is read, such as tokenizer_config.json.
constexpr int64_t kLongestTokenizer = 500'000'000, kLongestSettings = 1 << 24;
const std::string kEndId = "eos_token_id";
const std::string kSpecialTokensFile = "special_tokens_map.json";
// The files beside a tokenizer.json that copy_tokenizer() copies too.
const std::vector<std::string> kCopied{kTokenizerConfigFile, kSpecialTokensFile,
                                       kGenerationConfigFile};

// Returns the JSON object in the file `path`, or an empty object if there is no such file.
nlohmann::json object_in(const fs::path& path) {
  std::error_code unknown;
  if (!fs::exists(path, unknown)) return nlohmann::json::object();
  const std::string text = read_text(path, kLongestSettings);
  try {
    return read_json_object<nlohmann::json>(text);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(path.string() + ": " + error.what());
  }
}

// Returns the ids of eos_token_id in the JSON file `path`; nothing if the file or the member is
// missing, or if the member is null.
std::optional<std::vector<int64_t>> end_tokens_of(const fs::path& path) {
  const nlohmann::json value = object_in(path).value(kEndId, nlohmann::json());
  if (value.is_null()) return std::nullopt;
  try {
    return value.is_array() ? counts_of(value) : std::vector<int64_t>{count_of(value)};
  } catch (const std::runtime_error&) {
    throw std::runtime_error(path.string() + ": " + kEndId + " is neither an id nor a list of ids");
  }
}

// Returns the text of the member eos_token of the JSON file `path`; "" if the file or the member is
// missing.
std::string end_text_of(const fs::path& path) {
  nlohmann::json token = object_in(path).value("eos_token", nlohmann::json());
  if (token.is_object()) token = token.value("content", nlohmann::json());
  if (token.is_null()) return "";
  if (!token.is_string()) throw std::runtime_error(path.string() + ": eos_token is not a text");
  return token.get<std::string>();
}

// Returns the content of the tokenizer.json at `path`. Throws what check_tokenizer() throws.
nlohmann::json read_tokenizer(const std::string& path) {
  const std::string file = tokenizer_at(path), text = read_text(file, kLongestTokenizer);
  refuse_lfs_pointer(file, text);
  auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("model"))
    throw std::runtime_error(file + ": is not a " + kTokenizerFile + ", which has a model");
  return json;
}

// Calls visit(text, id) for each token of a tokenizer.json of any kind. The model of the kind
// Unigram has a list of its tokens, in the order of their ids; the other kinds have an object.
template <typename Visit>
void for_each_token(const nlohmann::json& tokenizer, const Visit& visit) {
  const auto& model = tokenizer.at("model");
  if (const auto all = model.find("vocab"); model.is_object() && all != model.end()) {
    int64_t place = 0;
    for (const auto& [text, value] : all->items()) {
      if (all->is_array()) {
        const bool has_text = value.is_array() && !value.empty() && value[0].is_string();
        visit(has_text ? value[0].template get<std::string>() : "", place++);
      } else if (value.is_number_integer()) {
        visit(text, value.template get<int64_t>());
      }
    }
  }
  if (const auto added = tokenizer.find("added_tokens"); added != tokenizer.end())
    for (const auto& token : *added)
      if (token.is_object() && token.contains("id") && token["id"].is_number_integer())
        visit(token.contains("content") && token["content"].is_string()
                  ? token["content"].template get<std::string>()
                  : "",
              token["id"].template get<int64_t>());
}

// Throws std::runtime_error if `id`, of which `what` says where it stands, is not below
// `vocabulary`.
void require_below(int64_t id, int64_t vocabulary, const std::string& what) {
  if (id >= vocabulary)
    throw std::runtime_error(what + " has the id " + std::to_string(id) +
                             ", and the model has only those below " + std::to_string(vocabulary));
}

}  // namespace

void check_tokenizer(const std::string& path) {
  read_tokenizer(path);
}

void check_tokenizer_of_model(const std::string& path, int64_t vocabulary) {
  const fs::path file = tokenizer_at(path), folder = file.parent_path();
  int64_t largest = -1;
  for_each_token(read_tokenizer(path),
                 [&](const std::string&, int64_t id) { largest = std::max(largest, id); });
  const auto naming_the_way = [](const std::string& way, const auto& check) {
    try {
      check();
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(error.what() + ("; " + way));
    }
  };
  naming_the_way("give the tokenizer of the model (--tokenizer)",
                 [&] { require_below(largest, vocabulary, file.string() + ": a token"); });
  naming_the_way("it lies beside the tokenizer: mend it, or remove it", [&] {
    for (const std::string& name : kCopied)
      object_in(folder / name);
    for (const std::string& name : {kGenerationConfigFile, kConfigFile})
      for (const int64_t id : end_tokens_of(folder / name).value_or(std::vector<int64_t>()))
        require_below(id, vocabulary, (folder / name).string() + ": " + kEndId);
    for (const std::string& name : {kTokenizerConfigFile, kSpecialTokensFile})
      end_text_of(folder / name);
  });
}

std::vector<int64_t> end_tokens_of_tokenizer(const std::string& path) {
  const fs::path folder = fs::path(tokenizer_at(path)).parent_path();
  if (auto ids = end_tokens_in(folder); !ids.empty()) return ids;
  for (const std::string& name : {kTokenizerConfigFile, kSpecialTokensFile}) {
    const std::string end = end_text_of(folder / name);
    std::optional<int64_t> found;
    if (!end.empty())
      for_each_token(read_tokenizer(path), [&](const std::string& text, int64_t id) {
        if (text == end) found = id;
      });
    if (found) return {*found};
  }
  return {};
}

std::string tokenizer_at(const std::string& path) {
  std::error_code unknown;
  const std::string kind = "hf:";  // of --init
  if (path.starts_with(kind) && fs::exists(path.substr(kind.size()), unknown))
    throw std::runtime_error(path + ": give it without hf:, as " + path.substr(kind.size()));
  if (!fs::exists(path, unknown))
    throw std::runtime_error(path +
                             ": no such file or folder; a tokenizer of the hub is first "
                             "downloaded, for example by: hf download NAME tokenizer.json "
                             "--local-dir FOLDER");
  return fs::is_directory(path, unknown) ? path + '/' + kTokenizerFile : path;
}

std::string tokenizer_in(const std::vector<std::string>& folders) {
  std::error_code unknown;
  for (const std::string& folder : folders)
    if (const fs::path path = fs::path(folder) / kTokenizerFile; fs::exists(path, unknown))
      return path;
  return "";
}

std::string tokenizer_beside(const std::string& checkpoint) {
  const fs::path folder = fs::absolute(checkpoint).lexically_normal();
  const fs::path own = folder.has_filename() ? folder : folder.parent_path();
  return tokenizer_in({own, own.parent_path()});
}

bool would_replace_tokenizer(const std::string& path, const std::string& tokenizer) {
  std::error_code unknown;
  if (!fs::exists(tokenizer, unknown)) return false;
  const bool is_folder = fs::is_directory(tokenizer, unknown);
  if (!is_folder && same_file(path, tokenizer)) return true;
  const fs::path folder = is_folder ? fs::path(tokenizer) : fs::absolute(tokenizer).parent_path();
  static const std::set<std::string> endings{".json", ".jinja", ".model", ".safetensors", ".txt"};
  for (const auto& entry : fs::directory_iterator(folder, unknown))
    if (endings.contains(entry.path().extension()) && same_file(path, entry.path())) return true;
  return false;
}

void copy_tokenizer(const std::string& path, const std::string& folder) {
  std::error_code unknown;
  const fs::path file = tokenizer_at(path);
  check_tokenizer(path);
  const auto copy = [&](const fs::path& from, const std::string& name) {
    if (!fs::copy_file(from, fs::path(folder) / name, unknown))
      throw std::runtime_error(from.string() + ": can't be copied: " + unknown.message());
  };
  copy(file, kTokenizerFile);
  for (const std::string& name : kCopied)
    if (const fs::path from = file.parent_path() / name; fs::exists(from, unknown))
      copy(from, name);
}

std::vector<int64_t> end_tokens_in(const std::string& folder) {
  for (const std::string& name : {kGenerationConfigFile, kConfigFile})
    if (const auto ids = end_tokens_of(fs::path(folder) / name)) return *ids;
  return {};
}

std::string end_text_in(const std::string& folder) {
  return end_text_of(fs::path(folder) / kTokenizerConfigFile);
}

}  // namespace fsdp
