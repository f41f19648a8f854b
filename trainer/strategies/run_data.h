#pragma once

#include <config/train_config.h>
#include <data/dataset.h>

#include <memory>
#include <string>

namespace fsdp {

// Makes the dataset that `config` names. Throws what text_of() throws, or TokenFile's constructor.
std::shared_ptr<Dataset> make_dataset(const TrainConfig& config);

// Returns the text of the run's files: config.data.text_content or, if that is null, the text that
// it reads from the files now. Throws what read_text_files() throws.
Text text_of(const TrainConfig& config);

// Returns the run's data in words: "text", "addition modulo 31".
std::string describe_data(const TrainConfig& config);

}  // namespace fsdp
