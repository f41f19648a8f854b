#pragma once

#include <config/train_config.h>
#include <data/dataset.h>

#include <memory>
#include <string>

namespace fsdp {

// What a run trains on. Throws what text_of() throws.
std::shared_ptr<Dataset> make_dataset(const TrainConfig& config);

// What the text files of a run hold: config.text_content, or read now. Throws as read_text_files().
Text text_of(const TrainConfig& config);

// The same in words, as "text" or "addition modulo 31".
std::string describe_data(const TrainConfig& config);

// The ids of the run's model: its own, or more if the data has more.
int64_t vocabulary_of(const TrainConfig& config);

}  // namespace fsdp
