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

// Returns "llama" or "gpt2".
const char* family_of(const ModelShape& shape);

// Returns the names and values of the options, in a fixed order, without those of the last options
// that have their default: dropout, head_dim and others. The values are written as in JSON: 64,
// 1e-06, true.
std::vector<std::pair<std::string, std::string>> fields_of(const ModelShape& shape);

// Returns a text such as "gpt2:vocabulary=61,context=19,d_model=35,layers=3,heads=5,d_ff=121".
std::string to_string(const ModelShape& shape);

// Reads the text of to_string(), with the fields in any order. The fields after d_ff may be
// missing.
// Throws: std::invalid_argument if the text has another form, or if no model can have this shape.
ModelShape parse_shape(const std::string& text);

// Returns the shape with these values of its fields. `names`: field -> the name that error messages
// use for it.
// Throws: std::invalid_argument, for example "heads 4 does not divide d_model 35".
ModelShape make_shape(const std::string& family, const std::map<std::string, std::string>& values,
                      const std::map<std::string, std::string>& names = {});

}  // namespace fsdp
