#pragma once

#include <config/train_config.h>
#include <data/dataset.h>

#include <memory>
#include <string>

namespace fsdp {

// Makes the dataset that `config` names. Throws what text_of() or TokenFile's constructor throws.
std::shared_ptr<Dataset> make_dataset(const TrainConfig& config);

// Returns the text on which the run trains: config.data.text_content or, if that is null, the text
// of the run's files, which it reads now. Throws what read_text_files() throws.
Text text_of(const TrainConfig& config);

// Returns what data the run trains on, in words: for example "text" or "addition modulo 31".
std::string describe_data(const TrainConfig& config);

}  // namespace fsdp
