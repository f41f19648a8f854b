#include <exchange/export.h>
#include <nn/lora.h>
#include <state/safetensors.h>
#include <state/saved_tensors.h>

#include <common/in_a_process.h>

#include <map>

#include "same_bits.h"

namespace fsdp {
namespace {

constexpr int kLoraParts = 4;

TrainConfig with_adapters(const Arranged& how, int64_t steps = 3) {
  TrainConfig config = config_of(how, kLoraParts, steps);
  config.model.lora = 3;
  config.model.lora_alpha = 6;
  config.model.lora_target = "c_attn$|c_fc$";
  return config;
}

TEST(LoraTraining, a_run_with_lora_ends_with_the_same_bits_for_every_mode_and_number_of_ranks) {
  const SameBits same_bits(with_adapters({"single", 1}));
  for (const Arranged& how :
       std::vector<Arranged>{{"ddp", 2}, {"fsdp", 1}, {"fsdp", 2}, {"fsdp", 4}, {"fsdp", 4, 2}})
    same_bits.expect_of(with_adapters(how), named(how));
  same_bits.expect_of_resumed(with_adapters({"fsdp", 4}, 2), with_adapters({"fsdp", 2}));
}

// Returns the tensor `name` of the safetensors file, in fp32.
at::Tensor tensor_in(const SafetensorsReader& file, const std::string& name) {
  const auto& entry = file.entries().at(name);
  const at::Tensor tensor = at::empty(entry.sizes, at::kFloat);
  file.read(entry, 0, tensor.view({-1}));
  return tensor;
}

// Exports the checkpoint, and checks that each exported tensor is the saved one, with its adapter
// merged if it has one.
void expect_merged(const std::string& checkpoint, const std::string& output) {
  export_parameters(checkpoint, ExportFormat::safetensors, output);
  const SafetensorsReader exported(output + "/model.safetensors");
  const SavedParameters saved = open_parameters(checkpoint);
  std::map<std::string, at::Tensor> own;
  for (const auto& parameter : saved.parameters) {
    own[parameter.name] = at::empty(parameter.sizes, at::kFloat);
    saved.read(parameter, own[parameter.name]);
  }
  size_t merged = 0;
  for (const auto& [name, value] : own) {
    if (is_lora(name)) continue;
    const std::string layer = name.substr(0, name.rfind('.'));
    const bool adapted = name.ends_with(".weight") && own.contains(layer + ".lora.A");
    const at::Tensor expected =
        adapted ? value + 2 * own[layer + ".lora.B"].mm(own[layer + ".lora.A"]) : value;
    EXPECT_TRUE(at::allclose(tensor_in(exported, name), expected, 0, 1e-7)) << name;
    EXPECT_EQ(expected.equal(value), !adapted) << name;
    merged += adapted;
  }
  EXPECT_EQ(merged, 6);
  for (const auto& [name, entry] : exported.entries())
    EXPECT_FALSE(is_lora(name)) << name;
}

TEST(LoraTraining, an_export_of_a_run_with_lora_has_merged_weights_and_no_adapters) {
  const TemporaryFolder folder;
  TrainConfig config = with_adapters({"fsdp", 2}, 2);
  config.checkpoint.dir = folder.path() + "/saved";
  config.checkpoint.save_every = 2;
  train(config, folder);
  in_a_process([&] { expect_merged(config.checkpoint.dir, folder.path() + "/model"); });
}

}  // namespace
}  // namespace fsdp
