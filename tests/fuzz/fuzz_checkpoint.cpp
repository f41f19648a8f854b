#include <comm/communicator.h>
#include <comm/communicator_options.h>
#include <exchange/export.h>
#include <launch/rank_context.h>
#include <launch/shared_region.h>
#include <state/checkpoint.h>
#include <task5_sharded_optimizer/each_element.h>
#include <trainer/saved_state.h>

#include "fuzz_target.h"

// The input has the files checkpoint.json, 0.safetensors, 1.safetensors, ... In checkpoint.json, @0
// stands for the hash of 0.safetensors, @1 for that of 1.safetensors, ...
bool fsdp::read_checkpoint(const std::string& input, const TemporaryFolder& folder) {
  auto files = files_in(input, 1);
  std::string sums;
  for (size_t i = 1; i < files.size(); ++i) {
    const std::string number = std::to_string(i - 1), name = number + ".safetensors";
    folder.write(name, files[i]);
    const std::string line = sum_line(files[i], name);
    replace_all(files[0], '@' + number, line.substr(0, line.find(' ')));
    sums += line;
  }
  folder.write("checkpoint.json", files[0]);
  folder.write("SHA256SUMS", sums + sum_line(files[0], "checkpoint.json"));
  static const auto comm = Communicator::create({0, 1, SharedRegion::create(1, size_t{1} << 20)});
  const ModelState state = cut_state(1, 3, true);
  const bool loaded = accepts<std::runtime_error>(
      folder.path(), [&] { load_checkpoint(folder.path(), state, each_element, *comm); });
  if (!loaded && !equal(state, cut_state(1, 3, true)))
    throw std::logic_error("a checkpoint was refused after it had changed a value");
  const bool exported = accepts<std::runtime_error>(folder.path(), [&] {
    export_parameters(folder.path(), ExportFormat::hf, folder.path() + "/exported");
  });
  return loaded || exported;
}
