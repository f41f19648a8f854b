#pragma once

#include <nn/gpt2.h>

#include <nlohmann/json.hpp>
#include <string>

// config.json of a folder that Hugging Face's transformers reads and writes: the size of a GPT-2,
// and which of its variants it is.
namespace fsdp {

inline const std::string kConfigFile = "config.json";

// Of our GPT2, which has neither dropout nor tokens that begin or end a text.
nlohmann::ordered_json gpt2_config(const GPT2Options& options);

// Throws std::runtime_error, which names the file and the member, unless it is a GPT-2 that
// computes what our GPT2 computes. A member that is missing has the value that transformers gives
// it.
GPT2Options read_gpt2_config(const std::string& folder);

// The first size in which they differ: "n_layer 12, and gpt2-tiny has 3"; empty if none does.
std::string difference_of_sizes(const GPT2Options& file, const std::string& model,
                                const GPT2Options& own);

}  // namespace fsdp
