#include <base/plain_error.h>
#include <base/text.h>
#include <exchange/export.h>
#include <exchange/hugging_face_config.h>
#include <exchange/hugging_face_folder.h>
#include <exchange/saved_adapters.h>
#include <nn/models.h>
#include <state/safetensors.h>
#include <state/saved_tensors.h>
#include <tokenizer/tokenizer_folder.h>

#include <filesystem>
#include <stdexcept>

namespace fsdp {
namespace {

namespace fs = std::filesystem;

// A new folder that is called PATH.part until complete() renames it to PATH. Without complete(),
// the destructor removes it.
class NewFolder {
 public:
  explicit NewFolder(const std::string& path) : path_(fs::absolute(path).lexically_normal()) {
    if (!path_.has_filename()) path_ = path_.parent_path();  // removes a slash at the end of `path`
    unfinished_ = path_.string() + kUnfinished;
    if (fs::exists(path_)) throw std::runtime_error(path + ": is there already");
    fs::create_directories(path_.parent_path());
    if (!fs::create_directory(unfinished_))
      throw std::runtime_error(unfinished_.string() +
                               ": exists, perhaps from an export that was stopped; remove it");
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

// Returns the shape of the saved model. The size of its vocabulary is read from the saved
// parameters, because a model that was trained on text can have more ids than the model of that
// name.
ModelShape saved_shape(const SavedParameters& saved, const std::string& model) {
  ModelShape shape = model_shape(model);
  std::visit(
      [&](auto& options) {
        if (!saved.parameters.empty() && !saved.parameters[0].sizes.empty())
          options.vocabulary = saved.parameters[0].sizes[0];
      },
      shape);
  return shape;
}

int64_t vocabulary_of(const ModelShape& shape) {
  return std::visit([](const auto& options) { return options.vocabulary; }, shape);
}

// Returns the tensors to write, one for each parameter of the model, in the order of the
// parameters. Throws std::runtime_error if the checkpoint has other parameters than the model named
// `model`.
std::vector<HuggingFaceTensor> saved_tensors(const SavedParameters& saved, const ModelShape& shape,
                                             const std::string& model) {
  auto tensors = hugging_face_tensors(shape);
  if (without_adapters(saved.parameters) != parameters_of(tensors))
    throw std::runtime_error(saved.checkpoint.folder + ": has other parameters than " +
                             one_line(model));
  return tensors;
}

void write_model(const SavedParameters& saved, const std::vector<HuggingFaceTensor>& tensors,
                 SafetensorsMetadata metadata, const std::string& path) {
  std::vector<SafetensorsEntry> entries;
  for (const HuggingFaceTensor& tensor : tensors)
    entries.push_back({tensor.name, at::kFloat, tensor.sizes()});
  metadata["format"] = "pt";  // transformers requires this entry of __metadata__
  SafetensorsWriter writer(path, entries, metadata);
  const SavedAdapters adapters(saved);
  for (const HuggingFaceTensor& tensor : tensors) {
    const at::Tensor whole = at::empty(tensor.own.sizes, at::kFloat);
    saved.read(tensor.own, whole);
    adapters.merge_into(tensor.own, whole);
    writer.write(tensor.stored(whole));
  }
  writer.close();
}

}  // namespace

void export_parameters(const std::string& checkpoint, ExportFormat format,
                       const std::string& output, const std::string& tokenizer) {
  NewFolder folder(output);
  const SavedParameters saved = open_parameters(checkpoint);
  const std::string model = saved.checkpoint.text_in_run("model");
  const ModelShape shape = [&] {
    try {
      return saved_shape(saved, model);
    } catch (const std::invalid_argument& error) {
      throw std::runtime_error(saved.checkpoint.folder + ": " + one_line(plain_text(error)));
    }
  }();
  auto tensors = saved_tensors(saved, shape, model);
  if (!tokenizer.empty()) check_tokenizer_of_model(tokenizer, vocabulary_of(shape));
  SafetensorsMetadata metadata;
  if (format == ExportFormat::hf) {
    const auto ends =
        tokenizer.empty() ? std::vector<int64_t>() : end_tokens_of_tokenizer(tokenizer);
    write_text(folder.path(), kConfigFile, hugging_face_config(shape, ends).dump(2) + '\n');
  } else {
    metadata = tied_names(model);
    for (HuggingFaceTensor& tensor : tensors)
      tensor = {tensor.own, tensor.own.name, Layout::same, 0};
  }
  if (!tokenizer.empty()) copy_tokenizer(tokenizer, folder.path());
  write_model(saved, tensors, metadata, folder.path() + "/model.safetensors");
  folder.complete();
}

}  // namespace fsdp
