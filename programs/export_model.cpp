#include <base/whole_file.h>
#include <command_line/command_line.h>
#include <command_line/usage.h>
#include <exchange/export.h>
#include <options/groups.h>
#include <tokenizer/tokenizer_folder.h>

#include <cstdio>
#include <filesystem>

// The program of ./fsdp export: writes the parameters of a checkpoint for other programs, in the
// format of --format: safetensors files, or the folder of a Hugging Face model.

namespace fsdp {
namespace {

bool is_trained_on(DataKind kind, const Checkpoint& saved) {
  return saved.text_in_run("recipe") == to_string(kind);
}

// Throws UsageError if --tokenizer contradicts another option or the checkpoint, or if the file
// that it names is not a tokenizer.
void check_tokenizer_option(const std::string& tokenizer, ExportFormat format,
                            const Checkpoint& saved) {
  if (tokenizer.empty()) return;
  if (format != ExportFormat::hf) throw UsageError("--tokenizer: needs --format hf");
  if (is_trained_on(DataKind::text, saved))
    throw UsageError("--tokenizer: " + saved.folder +
                     " was trained on text, so its tokens are bytes; leave out --tokenizer");
  naming_option("--tokenizer", [&] { check_tokenizer(tokenizer); });
}

int export_model(int argc, char** argv) {
  std::string checkpoint, output, tokenizer;
  ExportFormat format{};
  const std::vector<std::pair<std::string, ExportFormat>> formats{
      {"safetensors", ExportFormat::safetensors}, {"hf", ExportFormat::hf}};
  CLI::App app("Writes the parameters of a checkpoint into a folder for other programs.",
               "fsdp export");
  app.get_formatter()->column_width(34);
  app.add_option("--checkpoint", checkpoint,
                 "a checkpoint, or a folder of checkpoints, of which the latest is used")
      ->required();
  add_advice(app, "--resume", "--checkpoint takes a checkpoint");
  add_choice(app, "--format", format, formats,
             "safetensors (model.safetensors with the model's own names) or hf (also "
             "config.json, with the names and shapes of Hugging Face's transformers)")
      ->required();
  app.add_option("--output", output, "the folder to create; it must not exist")->required();
  app.add_option("--tokenizer", tokenizer,
                 "with --format hf: a tokenizer.json, or a folder that has one; it is copied into "
                 "the new folder, with tokenizer_config.json, special_tokens_map.json and "
                 "generation_config.json if they lie beside it (default: the tokenizer.json in the "
                 "folder of the checkpoints, if there is one)");
  bool needs_tokenizer = false;
  parse_command_line(app, {argv + 1, argv + argc}, [&] {
    const Checkpoint saved = checkpoint_of_option("--checkpoint", checkpoint);
    check_tokenizer_option(tokenizer, format, saved);
    needs_tokenizer = format == ExportFormat::hf && is_trained_on(DataKind::tokens, saved);
    if (needs_tokenizer && tokenizer.empty()) tokenizer = tokenizer_beside(saved.folder);
    std::error_code unknown;
    if (std::filesystem::exists(output, unknown))
      throw UsageError("--output " + output + ": is there already; name a new folder");
    check_output("--output", output, reason_not_to_fill(output));
  });
  export_parameters(checkpoint, format, output, tokenizer);
  std::printf("wrote %s\n", output.c_str());
  if (needs_tokenizer && tokenizer.empty())
    std::printf("%s has no %s: copy that of the model into it, or export with --tokenizer\n",
                output.c_str(), kTokenizerFile.c_str());
  return 0;
}

}  // namespace
}  // namespace fsdp

int main(int argc, char** argv) {
  return fsdp::run_program("fsdp export", [&] { return fsdp::export_model(argc, argv); });
}
