#pragma once

#include <string>

namespace fsdp {

enum class ExportFormat {
  // The exported folder has model.safetensors, in which tensors have this program's names.
  safetensors,
  // The exported folder has config.json, and model.safetensors, in which tensors have the names
  // that Hugging Face's transformers uses.
  hf,
};

// Writes the parameters of a checkpoint, or of the latest one in a folder of checkpoints, to the
// new folder `output`.
// - While this function writes, the folder is called OUTPUT.part. It gets its name when it is
//   complete and on the disk.
// - Adds the LoRA adapters of the checkpoint to the weights of their layers.
// - Holds the values of one tensor in memory at a time, and a copy of them if the layout changes.
// - Writes a tied parameter once, under its first name; __metadata__ maps its other names to it.
// - `tokenizer`: a tokenizer.json or a folder that has one, which is copied too (copy_tokenizer());
//   "": none. If its files tell the token at which a text ends, config.json has it.
// Throws: std::runtime_error, which names the file. After an error `output` does not exist or, if
// it existed before, is unchanged.
void export_parameters(const std::string& checkpoint, ExportFormat format,
                       const std::string& output, const std::string& tokenizer = "");

}  // namespace fsdp
