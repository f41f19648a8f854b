#pragma once

#include <config/train_config.h>
#include <data/dataset.h>
#include <nn/module.h>

#include <functional>
#include <memory>
#include <string>

namespace fsdp {

// What a run trains on. Throws what text_of() throws.
std::shared_ptr<Dataset> make_dataset(const TrainConfig& config);

// What the text files of a run hold: config.text_content, or read now. Throws as read_text_files().
Text text_of(const TrainConfig& config);

// What a run trains on, in words: "text", "addition modulo 31".
std::string describe_data(const TrainConfig& config);

// The ids of the run's model: its own, or more if the data has more.
int64_t vocabulary_of(const TrainConfig& config);

// Builds the model that `config` names, with parameters drawn from the default generator after
// manual_seed(config.seed). If events are recorded, its modules record their spans.
std::shared_ptr<Module> build_model(const TrainConfig& config);

// Moves the buffers of `model` to `device`, in place. The parameters move when they are sharded or
// replicated.
void move_buffers(const torch::nn::Module& model, c10::DeviceType device);

// What is trained: any model, and its loss. Every strategy plays it. Both functions give the same
// values on every rank and in every mode.
struct Workload {
  // Makes the model. It draws its values from a seed, so each call makes the same.
  std::function<std::shared_ptr<Module>()> build;
  // Calls `model` on its device, which may be meta (planning/rehearsal.h). Returns the loss, [], of
  // one of the `parts` equal parts of the batch of this step.
  std::function<at::Tensor(Module& model, int part, int parts, int64_t step)> loss;
};

// `tensor`, which is on the CPU, on the device of the model's first parameter. On the meta device
// it keeps `tensor` alive, where its bytes are counted.
at::Tensor to_device_of(const Module& model, const at::Tensor& tensor);

// The model that `config` names, on batches of the dataset. Keeps the batch of one step.
Workload language_modeling(const TrainConfig& config, std::shared_ptr<const Dataset> dataset);

}  // namespace fsdp
