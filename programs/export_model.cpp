#include <base/whole_file.h>
#include <command_line/command_line.h>
#include <command_line/usage.h>
#include <exchange/export.h>

#include <cstdio>
#include <filesystem>

// Writes the parameters of a checkpoint for other programs.

namespace fsdp {
namespace {

int export_model(int argc, char** argv) {
  std::string checkpoint, output;
  ExportFormat format{};
  const std::vector<std::pair<std::string, ExportFormat>> formats{
      {"safetensors", ExportFormat::safetensors}, {"hf", ExportFormat::hf}};
  CLI::App app("Writes the parameters of a checkpoint into a folder for other programs.",
               "fsdp export");
  app.get_formatter()->column_width(34);
  app.add_option("--checkpoint", checkpoint,
                 "a checkpoint, or a folder of checkpoints, of which the latest is used")
      ->required();
  add_choice(app, "--format", format, formats,
             "safetensors (model.safetensors with the model's own names) or hf (also "
             "config.json, with the names and shapes of Hugging Face's transformers)")
      ->required();
  app.add_option("--output", output, "the folder to create; it must not exist")->required();
  parse_command_line(app, {argv + 1, argv + argc}, [&] {
    std::error_code unknown;
    if (std::filesystem::exists(output, unknown))
      throw UsageError("--output " + output + ": is there already; name a new folder");
    check_output("--output", output, reason_not_to_fill(output));
  });
  export_parameters(checkpoint, format, output);
  std::printf("wrote %s\n", output.c_str());
  return 0;
}

}  // namespace
}  // namespace fsdp

int main(int argc, char** argv) {
  return fsdp::run_program("fsdp export", [&] { return fsdp::export_model(argc, argv); });
}
