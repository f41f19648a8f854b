#include <state/safetensors.h>

#include "fuzz_target.h"

bool fsdp::read_safetensors(const std::string& input, const TemporaryFolder& folder) {
  const std::string path = folder.write("file", input);
  return accepts<std::runtime_error>(path, [&] {
    const SafetensorsReader file(path);
    for (const auto& [name, entry] : file.entries())
      file.read(entry, 0, at::empty({entry.numel}, entry.dtype));
  });
}
