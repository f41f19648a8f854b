#pragma once

#include <nn/gpt2.h>
#include <nn/transformer_lm.h>

#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace fsdp {

// The family of a model, and its sizes.
using ModelShape = std::variant<TransformerLMOptions, GPT2Options>;

// "llama" or "gpt2".
const char* family_of(const ModelShape& shape);

// The members of its options by name, in one order. The values are as JSON has them: 64, 1e-06,
// true.
std::vector<std::pair<std::string, std::string>> fields_of(const ModelShape& shape);

// "gpt2:vocabulary=61,context=19,d_model=35,layers=3,heads=5,d_ff=121"
std::string to_string(const ModelShape& shape);

// Reads what to_string() writes, in any order. The fields after d_ff may be missing.
// Throws std::invalid_argument if the text is another one, or if no model has this shape.
ModelShape parse_shape(const std::string& text);

// The shape with these values of its fields. A message has the names in `names` in place of ours.
// Throws std::invalid_argument "heads 4 does not divide d_model 35".
ModelShape make_shape(const std::string& family, const std::map<std::string, std::string>& values,
                      const std::map<std::string, std::string>& names = {});

}  // namespace fsdp
