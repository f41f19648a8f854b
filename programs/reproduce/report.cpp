#include <base/whole_file.h>
#include <command_line/commit.h>
#include <reproduce/report.h>

#include <sys/utsname.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>

namespace fsdp {
namespace {

using Json = nlohmann::ordered_json;

std::string now() {
  char text[32];
  const std::time_t time = std::time(nullptr);
  std::tm utc{};
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&time, &utc));
  return text;
}

Json circumstances() {
  const std::string commit = current_commit();
  utsname system{};
  uname(&system);
  const int64_t memory = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  return {{"date", now()},
          {"commit", commit.empty() ? Json(nullptr) : Json(commit)},
          {"machine",
           {{"processor", field("/proc/cpuinfo", "model name")},
            {"cores", sysconf(_SC_NPROCESSORS_ONLN)},
            {"memory_bytes", memory}}},
          {"versions",
           {{"libtorch", TORCH_VERSION},
            {"compiler", __VERSION__},
            {"system", field("/etc/os-release", "PRETTY_NAME")},
            {"kernel", system.release}}}};
}

std::string introduction(const std::string& command, const Json& about) {
  const Json& machine = about["machine"];
  const Json& versions = about["versions"];
  const Json& commit = about["commit"];
  const auto text = [](const Json& value) { return value.get<std::string>(); };
  return "# " + command + "\n" + text(about["date"]) + ", commit " +
         (commit.is_null() ? "none" : text(commit)) + ", " + text(machine["processor"]) + ", " +
         machine["cores"].dump() + " cores, " +
         std::to_string(machine["memory_bytes"].get<int64_t>() >> 20) + " MiB, LibTorch " +
         text(versions["libtorch"]) + ", compiler " + text(versions["compiler"]) + ", " +
         text(versions["system"]) + ", Linux " + text(versions["kernel"]) + "\n";
}

}  // namespace

std::string field(const std::filesystem::path& path, const std::string& key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with(key)) continue;
    const size_t begin = line.find_first_not_of(" \t:=\"", key.size());
    const size_t end = line.find_last_not_of(" \t\"");
    return begin == std::string::npos ? "" : line.substr(begin, end - begin + 1);
  }
  return "";
}

std::string Report::verdict() const {
  const auto ok = [](const Table& table) { return table.ok(); };
  return std::ranges::all_of(tables, ok) ? "ok" : "NOT OK";
}

std::string Report::markdown() const {
  std::string text;
  for (const Table& table : tables)
    text += table.markdown() + "\n";
  return text;
}

void Report::write(const std::filesystem::path& folder, const Json& runs) const {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  Json json{{"command", command}, {"verdict", verdict()}};
  json.update(circumstances());
  std::string lines = json.dump() + "\n";
  for (const Json& run : runs)
    lines += run.dump() + "\n";
  write_whole_file(folder / (name + ".md"), introduction(command, json) + "\n" + markdown());
  write_whole_file(folder / (name + ".json"), lines);
}

std::string last_verdict(const std::filesystem::path& folder, const std::string& name) {
  std::ifstream file(folder / (name + ".json"));
  std::string line;
  return std::getline(file, line) ? Json::parse(line).at("verdict") : Json("not run");
}

}  // namespace fsdp
