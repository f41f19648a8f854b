#pragma once

#include <string>

namespace fsdp {

enum class ExportFormat {
  safetensors,  // model.safetensors, with the model's own names
  hf,           // the same with Hugging Face's names, and config.json
};

// Writes the parameters of a checkpoint, or of the latest one in a folder of checkpoints, into the
// new folder `output`. It appears with this name at once, complete and on the disk; before, it is
// called OUTPUT.part. Of the values it holds one tensor at a time, and another one to transpose it.
// A tied parameter is written once, under its first name; __metadata__ maps its other names to it.
// Throws std::runtime_error, which names the file; then there is no `output`, unless there was one,
// which stays as it is.
void export_parameters(const std::string& checkpoint, ExportFormat format,
                       const std::string& output);

}  // namespace fsdp
