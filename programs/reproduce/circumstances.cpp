#include <base/file_field.h>
#include <command_line/commit.h>
#include <reproduce/circumstances.h>

#include <sys/utsname.h>
#include <torch/version.h>
#include <unistd.h>

#include <ctime>

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

}  // namespace

Json circumstances() {
  const std::string commit = current_commit();
  utsname system{};
  uname(&system);
  const int64_t memory = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  return {{"date", now()},
          {"commit", commit.empty() ? Json(nullptr) : Json(commit)},
          {"machine",
           {{"processor", field_of_file("/proc/cpuinfo", "model name")},
            {"cores", sysconf(_SC_NPROCESSORS_ONLN)},
            {"memory_bytes", memory}}},
          {"versions",
           {{"libtorch", TORCH_VERSION},
            {"compiler", __VERSION__},
            {"system", field_of_file("/etc/os-release", "PRETTY_NAME")},
            {"kernel", system.release}}}};
}

std::string text_of_circumstances(const Json& about) {
  const Json& machine = about["machine"];
  const Json& versions = about["versions"];
  const Json& commit = about["commit"];
  const auto text = [](const Json& value) { return value.get<std::string>(); };
  return text(about["date"]) + ", commit " + (commit.is_null() ? "none" : text(commit)) + ", " +
         text(machine["processor"]) + ", " + machine["cores"].dump() + " cores, " +
         std::to_string(machine["memory_bytes"].get<int64_t>() >> 20) + " MiB, LibTorch " +
         text(versions["libtorch"]) + ", compiler " + text(versions["compiler"]) + ", " +
         text(versions["system"]) + ", Linux " + text(versions["kernel"]);
}

}  // namespace fsdp
