#include <base/plain_error.h>
#include <base/text.h>
#include <base/whole_file.h>
#include <state/checkpoint.h>
#include <state/checkpoint_folder.h>
#include <state/files.h>
#include <state/folder_kind.h>
#include <state/untrusted_json.h>

#include <cstdio>
#include <filesystem>
#include <regex>
#include <stdexcept>

namespace fsdp {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kLongestText = 64 << 20;  // the most bytes of a checkpoint.json or SHA256SUMS

// Returns the line of SHA256SUMS for the file `name`.
std::string sum_of(const std::string& sha256, const std::string& name) {
  return sha256 + "  " + name + '\n';
}

}  // namespace

void to_json(Json& json, const SavedFile& file) {
  json = {{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}};
}

void from_json(const Json& json, SavedFile& file) {
  file = {json.at("name"), count_of(json.at("bytes")), json.at("sha256")};
  if (file.name.find('/') != std::string::npos || file.name != one_line(file.name))
    throw std::runtime_error("names a file of another folder");
}

std::string step_folder(const std::string& directory, int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "/step-%06lld", static_cast<long long>(step));
  return directory + name;
}

std::map<int64_t, std::string> step_folders(const std::string& directory) {
  static const std::regex kName("step-([0-9]{6,18})");
  std::map<int64_t, std::string> folders;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(directory, none)) {
    const std::string name = entry.path().filename();
    std::smatch match;
    if (std::regex_match(name, match, kName)) folders[std::stoll(match[1])] = entry.path();
  }
  return folders;
}

std::string checkpoint_in_which_lies(const std::string& path, const std::string& checkpoint) {
  if (lies_below(path, checkpoint)) return checkpoint;
  fs::path own = checkpoint;
  if (!own.has_filename()) own = own.parent_path();  // removes the slash at the end
  const std::string around = own.has_parent_path() ? own.parent_path().string() : ".";
  for (const auto& [step, folder] : step_folders(around))
    if (lies_below(path, folder)) return folder;
  return "";
}

SavedFile write_text(const std::string& folder, const std::string& name, const std::string& text) {
  FileWriter file(folder + '/' + name);
  file.write(text.data(), text.size());
  file.close();
  return {name, file.size(), file.sha256()};
}

void write_description(const std::string& folder, Json description,
                       const std::vector<SavedFile>& files) {
  description["files"] = files;
  std::string sums;
  for (const SavedFile& file : files)
    sums += sum_of(file.sha256, file.name);
  const std::string text = description.dump(1) + '\n';
  read_json_object<Json>(text);  // throws if read_description() would refuse the text
  const SavedFile own = write_text(folder, kDescriptionFile, text);
  write_text(folder, kSumsFile, sums + sum_of(own.sha256, own.name));
  sync_folder(folder);
}

Description read_description(const std::string& folder) {
  const std::string path = folder + '/' + kDescriptionFile;
  const std::string text = read_text(path, kLongestText);
  const std::string sums = read_text(folder + '/' + kSumsFile, kLongestText);
  Sha256 hash;
  hash.update(std::as_bytes(std::span(text)));
  if (!('\n' + sums).ends_with('\n' + sum_of(hash.hex(), kDescriptionFile)))
    throw std::runtime_error(path + ": is damaged; its SHA-256 is not the one in " + kSumsFile);
  Description description;
  try {
    description.json = read_json_object<Json>(text);
    const Json& json = description.json;
    if (json.at("format") != "fsdp checkpoint") throw std::runtime_error("is no checkpoint");
    if (json.at("version") != kCheckpointVersion)
      throw std::runtime_error("has version " + json.at("version").dump() +
                               " of the format; this program knows version " +
                               std::to_string(kCheckpointVersion));
    description.files = json.at("files").get<std::vector<SavedFile>>();
  } catch (const std::exception& error) {
    throw std::runtime_error(path + ": " + one_line(plain_text(error)));
  }
  std::string expected;
  for (const SavedFile& file : description.files)
    expected += sum_of(file.sha256, file.name);
  if (sums != expected + sum_of(hash.hex(), kDescriptionFile))
    throw std::runtime_error(folder + '/' + kSumsFile +
                             ": is damaged; it does not have the sums of " + kDescriptionFile);
  return description;
}

std::optional<int64_t> latest_step(const std::string& directory) {
  const auto folders = step_folders(directory);
  if (folders.empty()) return std::nullopt;
  return folders.rbegin()->first;
}

Checkpoint find_checkpoint(const std::string& path) {
  std::string folder = path;
  std::error_code unknown;
  if (!fs::exists(fs::path(path) / kDescriptionFile, unknown)) {
    if (unknown) throw std::runtime_error(path + ": " + unknown.message());
    const auto folders = step_folders(path);
    if (folders.empty()) throw std::runtime_error(path + ": " + reason_for_no_checkpoint(path));
    folder = folders.rbegin()->second;
  }
  const Json json = read_description(folder).json;
  try {
    return {folder, count_of(json.at("step")), json.at("run")};
  } catch (const std::exception& error) {
    throw std::runtime_error(folder + '/' + kDescriptionFile + ": " + plain_text(error));
  }
}

std::string Checkpoint::text_in_run(const std::string& name) const {
  if (!run.is_object() || !run.contains(name)) return "";
  if (run.at(name).is_string()) return run.at(name);
  throw std::runtime_error(folder + '/' + kDescriptionFile + ": " + name + " is no text");
}

std::optional<int64_t> Checkpoint::number_in_run(const std::string& path) const {
  const Json::json_pointer pointer(path);
  if (!run.contains(pointer)) return std::nullopt;
  try {
    return count_of(run.at(pointer));
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(folder + '/' + kDescriptionFile + ": " + one_line(plain_text(error)));
  }
}

void remove_unfinished_checkpoints(const std::string& directory) {
  std::vector<fs::path> unfinished;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(directory, none)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("step-") && name.ends_with(kUnfinished)) unfinished.push_back(entry);
  }
  for (const fs::path& folder : unfinished)
    fs::remove_all(folder);
}

void remove_old_checkpoints(const std::string& directory, int64_t keep) {
  remove_old_checkpoints(directory, keep, /*held=*/-1);
}

void remove_old_checkpoints(const std::string& directory, int64_t keep, int64_t held) {
  const auto folders = step_folders(directory);
  int64_t old = static_cast<int64_t>(folders.size()) - keep;
  // Renames all old folders to step-N.part before it removes the first one. So if the removal is
  // interrupted, a folder that has lost some of its files does not look like a checkpoint.
  for (const auto& [step, folder] : folders)
    if (--old >= 0 && step != held) fs::rename(folder, folder + kUnfinished);
  remove_unfinished_checkpoints(directory);
}

std::string TensorName::text() const {
  std::string text = parameter;
  if (kind != StateKind::parameter) text += '/' + std::string(to_string(kind));
  if (range) text += ':' + std::to_string(range->first) + '-' + std::to_string(range->second);
  return text;
}

TensorName TensorName::parse(const std::string& text) {
  static const std::regex kRange(":([0-9]{1,18})-([0-9]{1,18})$");
  TensorName name{text, StateKind::parameter, {}};
  std::smatch match;
  if (std::regex_search(text, match, kRange)) {
    name.range.emplace(std::stoll(match[1]), std::stoll(match[2]));
    name.parameter = match.prefix();
  }
  for (const StateKind kind : {StateKind::exp_avg, StateKind::exp_avg_sq, StateKind::step}) {
    const std::string end = '/' + std::string(to_string(kind));
    if (!name.parameter.ends_with(end)) continue;
    name.parameter.resize(name.parameter.size() - end.size());
    name.kind = kind;
    break;
  }
  return name;
}

}  // namespace fsdp
