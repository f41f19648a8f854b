#include <base/whole_file.h>
#include <state/files.h>
#include <state/folder_kind.h>
#include <state/untrusted_json.h>
#include <tokenizer/tokenizer_folder.h>

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

}  // namespace

void check_tokenizer(const std::string& path) {
  const std::string file = tokenizer_at(path), text = read_text(file, kLongestTokenizer);
  refuse_lfs_pointer(file, text);
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("model"))
    throw std::runtime_error(file + ": is not a " + kTokenizerFile + ", which has a model");
}

std::string tokenizer_at(const std::string& path) {
  std::error_code unknown;
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
  for (const std::string& name :
       {kTokenizerConfigFile, std::string("special_tokens_map.json"), kGenerationConfigFile})
    if (const fs::path from = file.parent_path() / name; fs::exists(from, unknown))
      copy(from, name);
}

std::vector<int64_t> end_tokens_in(const std::string& folder) {
  for (const std::string& name : {kGenerationConfigFile, kConfigFile})
    if (const auto ids = end_tokens_of(fs::path(folder) / name)) return *ids;
  return {};
}

std::string end_text_in(const std::string& folder) {
  const fs::path path = fs::path(folder) / kTokenizerConfigFile;
  nlohmann::json token = object_in(path).value("eos_token", nlohmann::json());
  if (token.is_object()) token = token.value("content", nlohmann::json());
  if (token.is_null()) return "";
  if (!token.is_string()) throw std::runtime_error(path.string() + ": eos_token is not a text");
  return token.get<std::string>();
}

}  // namespace fsdp
