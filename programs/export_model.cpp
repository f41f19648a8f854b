#include <command_line/command_line.h>
#include <exchange/export.h>

#include <cstdio>
#include <map>

// Writes the parameters of a checkpoint for other programs.

namespace fsdp {
namespace {

int export_model(int argc, char** argv) {
  std::string checkpoint, output;
  ExportFormat format{};
  const std::map<std::string, ExportFormat> formats{{"safetensors", ExportFormat::safetensors},
                                                    {"hf", ExportFormat::hf}};
  CLI::App app("Writes the parameters of a checkpoint into a folder for other programs.",
               "fsdp export");
  app.get_formatter()->column_width(34);
  app.add_option("--checkpoint", checkpoint,
                 "a checkpoint, or a folder of which to take the latest")
      ->required();
  app.add_option("--format", format,
                 "safetensors (model.safetensors with the model's own names) or hf (also "
                 "config.json, with the names and shapes of Hugging Face's transformers)")
      ->required()
      ->transform(CLI::CheckedTransformer(formats).description("safetensors|hf"));
  app.add_option("--output", output, "the folder to make; it must not be there")->required();
  parse_command_line(app, {argv + 1, argv + argc});
  export_parameters(checkpoint, format, output);
  std::printf("wrote %s\n", output.c_str());
  return 0;
}

}  // namespace
}  // namespace fsdp

int main(int argc, char** argv) {
  return fsdp::run_program("fsdp export", [&] { return fsdp::export_model(argc, argv); });
}
