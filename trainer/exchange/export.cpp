#include <exchange/export.h>
#include <exchange/gpt2_config.h>
#include <exchange/gpt2_names.h>
#include <nn/models.h>
#include <state/safetensors.h>
#include <state/saved_tensors.h>

#include <filesystem>
#include <stdexcept>

namespace fsdp {
namespace {

namespace fs = std::filesystem;

// A folder that gets its name when it is complete.
class NewFolder {
 public:
  explicit NewFolder(const std::string& path) : path_(fs::absolute(path).lexically_normal()) {
    if (!path_.has_filename()) path_ = path_.parent_path();  // it ended with a slash
    unfinished_ = path_.string() + kUnfinished;
    if (fs::exists(path_)) throw std::runtime_error(path + ": is there already");
    fs::create_directories(path_.parent_path());
    if (!fs::create_directory(unfinished_))
      throw std::runtime_error(unfinished_.string() +
                               ": is there, perhaps from an export that was stopped; remove it");
  }
  ~NewFolder() {
    std::error_code none;
    fs::remove_all(unfinished_, none);
  }
  NewFolder(const NewFolder&) = delete;

  std::string path() const { return unfinished_.string(); }
  void complete() {
    sync_folder(unfinished_.string());
    fs::rename(unfinished_, path_);
    sync_folder(path_.parent_path().string());
  }

 private:
  fs::path path_, unfinished_;
};

// What is to be written of each parameter, in their order.
std::vector<HuggingFaceTensor> tensors_of(const SavedParameters& saved, ExportFormat format) {
  std::vector<HuggingFaceTensor> tensors;
  for (const auto& parameter : saved.parameters)
    tensors.push_back(format == ExportFormat::hf
                          ? hugging_face_tensor(parameter)
                          : HuggingFaceTensor{parameter.name, parameter.sizes, false});
  return tensors;
}

void write_model(const SavedParameters& saved, const std::vector<HuggingFaceTensor>& tensors,
                 SafetensorsMetadata metadata, const std::string& path) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, sizes, transposed] : tensors)
    entries.push_back({name, at::kFloat, sizes});
  metadata["format"] = "pt";  // which transformers asks for
  SafetensorsWriter writer(path, entries, metadata);
  for (size_t i = 0; i < tensors.size(); ++i) {
    at::Tensor whole = at::empty(saved.parameters[i].sizes, at::kFloat);
    saved.read(saved.parameters[i], whole);
    if (tensors[i].transposed) whole = whole.t().contiguous();
    writer.write(whole);
  }
  writer.close();
}

void write_config(const GPT2Options& options, const std::string& folder) {
  const std::string text = gpt2_config(options).dump(2) + '\n';
  FileWriter file(folder + '/' + kConfigFile);
  file.write(text.data(), text.size());
  file.close();
}

// The size of the GPT2 that was saved.
GPT2Options gpt2_options_of(const SavedParameters& saved, const std::string& model) {
  auto options = gpt2_options(model);
  if (!options) {
    throw std::runtime_error(saved.checkpoint.folder + ": is of " + model +
                             ", which is no GPT-2; the format hf takes " + gpt2_names() +
                             ", and safetensors takes every model");
  }
  // On text a model may have been trained with more ids than its own.
  if (!saved.parameters.empty() && !saved.parameters[0].sizes.empty())
    options->vocabulary = saved.parameters[0].sizes[0];
  if (saved.parameters != gpt2_parameters(*options))
    throw std::runtime_error(saved.checkpoint.folder + ": has other parameters than " + model);
  return *options;
}

}  // namespace

void export_parameters(const std::string& checkpoint, ExportFormat format,
                       const std::string& output) {
  NewFolder folder(output);
  const SavedParameters saved = open_parameters(checkpoint);
  const std::string model = saved.checkpoint.run.value("model", "");
  SafetensorsMetadata metadata;
  if (format == ExportFormat::hf) {
    write_config(gpt2_options_of(saved, model), folder.path());
  } else {
    metadata = tied_names(model);
  }
  write_model(saved, tensors_of(saved, format), metadata, folder.path() + "/model.safetensors");
  folder.complete();
}

}  // namespace fsdp
