#include <command_line/command_line.h>
#include <state/checkpoint.h>
#include <state/checkpoint_folder.h>
#include <state/safetensors.h>

#include <cstdio>
#include <filesystem>

// The program of ./fsdp inspect: prints what is in a checkpoint or in a safetensors file. Reads the
// headers of the files, not the values of the tensors.

namespace fsdp {
namespace {

void print_tensors(const SafetensorsReader& file) {
  int64_t elements = 0;
  for (const auto& [name, entry] : file.entries()) {
    elements += entry.numel;
    std::printf("  %-58s %-4s %s\n", name.c_str(), safetensors_dtype(entry.dtype).c_str(),
                nlohmann::json(entry.sizes).dump().c_str());
  }
  std::printf("  %zu tensors, %lld elements\n", file.entries().size(),
              static_cast<long long>(elements));
}

void print_checkpoint(const Checkpoint& checkpoint, bool tensors) {
  std::printf("%s: a checkpoint after step %lld\n", checkpoint.folder.c_str(),
              static_cast<long long>(checkpoint.step));
  for (const auto& [name, value] : checkpoint.run.items())
    std::printf("  %-16s %s\n", name.c_str(),
                (value.is_string() ? value.get<std::string>() : value.dump()).c_str());
  for (const SavedFile& saved : read_description(checkpoint.folder).files) {
    std::printf("%s: %.1f MB\n", saved.name.c_str(), static_cast<double>(saved.bytes) / 1e6);
    if (tensors) print_tensors(SafetensorsReader(checkpoint.folder + '/' + saved.name));
  }
}

int inspect(int argc, char** argv) {
  std::string path;
  bool tensors = false;
  CLI::App app("Prints what is in a checkpoint, or in a safetensors file.", "fsdp inspect");
  app.get_formatter()->column_width(34);
  app.add_option("CHECKPOINT", path,
                 "a checkpoint, a folder of checkpoints, of which the latest is used, or a file")
      ->required();
  app.add_flag("--tensors", tensors, "list the tensors in each file of a checkpoint");
  parse_command_line(app, {argv + 1, argv + argc});
  if (!std::filesystem::exists(path)) throw UsageError(path + ": no such file or folder");
  if (std::filesystem::is_regular_file(path)) {
    const SafetensorsReader file(path);
    for (const auto& [key, value] : file.metadata())
      std::printf("  %-16s %s\n", key.c_str(), value.c_str());
    print_tensors(file);
  } else {
    print_checkpoint(find_checkpoint(path), tensors);
  }
  return 0;
}

}  // namespace
}  // namespace fsdp

int main(int argc, char** argv) {
  return fsdp::run_program("fsdp inspect", [&] { return fsdp::inspect(argc, argv); });
}
