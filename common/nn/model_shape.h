#pragma once

#include <nn/gpt2.h>
#include <nn/transformer_lm.h>

#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace fsdp {

// The architecture of a model: its family, which is the type of the options, and its sizes.
using ModelShape = std::variant<TransformerLMOptions, GPT2Options>;

// Returns the family of the model: "llama" for TransformerLMOptions, "gpt2" for GPT2Options.
const char* family_of(const ModelShape& shape);

// Returns the names and values of the options in a fixed order. Some options, such as dropout and
// head_dim, are left out if they have their default. The values are written as in JSON: 64, 1e-06,
// true.
std::vector<std::pair<std::string, std::string>> fields_of(const ModelShape& shape);

// Returns a text such as "gpt2:vocabulary=61,context=19,d_model=35,layers=3,heads=5,d_ff=121",
// which parse_shape() reads.
std::string to_string(const ModelShape& shape);

// Reads the text of to_string(), with the fields in any order. The fields after d_ff may be
// missing; but if rope_factor is not 1, rope_context is required.
// Throws: std::invalid_argument if the text has another form, or if no model can have this shape.
ModelShape parse_shape(const std::string& text);

// Returns the shape of a model of `family` whose fields have these `values`, given as texts.
// `names`: field -> the name that error messages use for it.
// Throws: std::invalid_argument, for example "heads 4 does not divide d_model 35".
ModelShape make_shape(const std::string& family, const std::map<std::string, std::string>& values,
                      const std::map<std::string, std::string>& names = {});

}  // namespace fsdp
