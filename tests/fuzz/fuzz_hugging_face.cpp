#include <exchange/hugging_face_folder.h>

#include "fuzz_target.h"

// The input has the files config.json, model.safetensors.index.json, 0.safetensors, 1.safetensors,
// ... If the index is empty, it has config.json, an empty file and model.safetensors.
bool fsdp::read_hugging_face(const std::string& input, const TemporaryFolder& folder) {
  const auto files = files_in(input, 3);
  folder.write("config.json", files[0]);
  if (!files[1].empty()) folder.write("model.safetensors.index.json", files[1]);
  for (size_t i = 2; i < files.size(); ++i)
    folder.write((files[1].empty() ? "model" : std::to_string(i - 2)) + ".safetensors", files[i]);
  return accepts<std::runtime_error>(folder.path(), [&] {
    const HuggingFaceFolder model(folder.path());
    model.check_head(0, 1);
    for (const ModelState::Parameter& parameter : model.parameters()) {
      const int64_t numel = parameter.numel();
      model.read({parameter.name, 0, numel, at::empty({numel}), {}, {}, {}});
    }
  });
}
