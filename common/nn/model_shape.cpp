#include <nn/model_shape.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>
#include <stdexcept>
#include <type_traits>

namespace fsdp {
namespace {

const char* const kDropout = "dropout";
const char* const kTiedHead = "tied_head";
const char* const kHeadDim = "head_dim";
const char* const kQkNorm = "qk_norm";
const char* const kRopeFactor = "rope_factor";
const char* const kRopeContext = "rope_context";

// Calls visit(name, member, limit) for each field of the options. A whole number must be at most
// its limit. A real number must be below its limit, or below 1e12 if the limit is 0. The limits
// keep products of sizes small.
template <typename Options, typename Visit>
void visit_fields(Options& options, const Visit& visit) {
  visit("vocabulary", options.vocabulary, 100'000'000);
  visit("context", options.context, 100'000'000);
  visit("d_model", options.d_model, 1'000'000);
  visit("layers", options.layers, 10'000);
  visit("heads", options.heads, 1'000'000);
  visit("d_ff", options.d_ff, 10'000'000);
  if constexpr (std::is_same_v<std::remove_const_t<Options>, GPT2Options>) {
    visit(kTiedHead, options.tied_head, 0);
    visit(kDropout, options.dropout, 1);
  } else {
    visit("kv_heads", options.kv_heads, 1'000'000);
    visit("rope_theta", options.rope_theta, 0);
    visit("norm_eps", options.norm_eps, 0);
    visit("qkv_bias", options.qkv_bias, 0);
    visit(kTiedHead, options.tied_head, 0);
    visit(kHeadDim, options.head_dim, 1'000'000);
    visit(kQkNorm, options.qk_norm, 0);
    visit(kRopeFactor, options.rope_factor, 0);
    visit("rope_low", options.rope_low, 0);
    visit("rope_high", options.rope_high, 0);
    visit(kRopeContext, options.rope_context, 100'000'000);
  }
}

std::string text_of(int64_t value) {
  return std::to_string(value);
}

std::string text_of(bool value) {
  return value ? "true" : "false";
}

// Returns the shortest decimal text from which exactly `value` is read; with ".0" if `value` is
// whole.
std::string text_of(double value) {
  std::array<char, 32> digits{};
  const std::string text(digits.data(), std::to_chars(digits.begin(), digits.end(), value).ptr);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

template <typename Number>
bool read_number(const std::string& text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value > 0;
}

// Each overload of read() parses `text` into `value`. It returns "" on success, or else a
// description of the text that is expected.
std::string read(const std::string& text, int64_t& value, int64_t most) {
  if (read_number(text, value) && value <= most) return "";
  return "a number from 1 to " + std::to_string(most);
}

std::string read(const std::string& text, double& value, int64_t limit) {
  const double most = limit > 0 ? static_cast<double>(limit) : 1e12;
  if (read_number(text, value) && value < most) return "";
  return std::string("a number above 0 and below ") + (limit > 0 ? std::to_string(limit) : "1e12");
}

std::string read(const std::string& text, bool& value, int64_t) {
  value = text == "true";
  return value || text == "false" ? "" : "true or false";
}

using Texts = std::map<std::string, std::string>;

std::string name_in(const Texts& names, const std::string& name) {
  const auto other = names.find(name);
  return other == names.end() ? name : other->second;
}

// Throws std::invalid_argument if the options contradict each other: the width of a head is odd,
// qkv_bias and qk_norm are both on, or, if rope_factor is not 1, rope_context is missing or
// rope_high is not above rope_low.
void check_llama(const TransformerLMOptions& options, const Texts& names) {
  const auto named = [&](const char* field) { return name_in(names, field); };
  if (options.width_of_head() % 2 != 0)
    throw std::invalid_argument(
        (options.head_dim > 0 ? named(kHeadDim) : named("d_model") + " / " + named("heads")) +
        " is odd, but rotary positions need an even number");
  if (options.qkv_bias && options.qk_norm)
    throw std::invalid_argument("qkv_bias and qk_norm: no known model has both");
  if (options.rope_factor == 1) return;
  if (options.rope_context == 0) throw std::invalid_argument(named(kRopeContext) + " is missing");
  if (options.rope_high <= options.rope_low)
    throw std::invalid_argument(named("rope_high") + " is not above " + named("rope_low"));
}

template <typename Options>
Options options_of(const Texts& values, const Texts& names) {
  Options options{};
  const auto require_divides = [&](const char* part, int64_t parts, const char* whole, int64_t of) {
    if (of % parts == 0) return;
    throw std::invalid_argument(name_in(names, part) + ' ' + std::to_string(parts) +
                                " does not divide " + name_in(names, whole) + ' ' +
                                std::to_string(of));
  };
  Texts unknown = values;
  visit_fields(options, [&]<typename Value>(const std::string& name, Value& value, int64_t most) {
    if (name == "kv_heads") value = static_cast<Value>(options.heads);
    const auto text = values.find(name);
    if (text == values.end()) {
      const bool optional = name == kHeadDim || name == kRopeContext;
      if (value == Value{} && std::is_same_v<Value, int64_t> && !optional)
        throw std::invalid_argument(name_in(names, name) + " is missing");
      return;
    }
    unknown.erase(name);
    if (const std::string other = read(text->second, value, most); !other.empty())
      throw std::invalid_argument(name_in(names, name) + " is " + text->second + ", not " + other);
  });
  if (!unknown.empty()) throw std::invalid_argument("has no " + unknown.begin()->first);
  if constexpr (std::is_same_v<Options, TransformerLMOptions>) {
    if (options.head_dim == 0) require_divides("heads", options.heads, "d_model", options.d_model);
    require_divides("kv_heads", options.kv_heads, "heads", options.heads);
    check_llama(options, names);
  } else {
    require_divides("heads", options.heads, "d_model", options.d_model);
  }
  return options;
}

// Returns whether fields_of() leaves out the field `name`, because it has the value here that all
// models had before this field was added. So the texts of these models' shapes did not change.
bool is_off(const GPT2Options& options, const std::string& name) {
  return (name == kDropout && options.dropout == 0) || (name == kTiedHead && options.tied_head);
}
bool is_off(const TransformerLMOptions& options, const std::string& name) {
  return (name == kHeadDim && options.head_dim == 0) || (name == kQkNorm && !options.qk_norm) ||
         (name.starts_with("rope_") && name != "rope_theta" && options.rope_factor == 1);
}

}  // namespace

const char* family_of(const ModelShape& shape) {
  return std::holds_alternative<GPT2Options>(shape) ? "gpt2" : "llama";
}

std::vector<std::pair<std::string, std::string>> fields_of(const ModelShape& shape) {
  std::vector<std::pair<std::string, std::string>> fields;
  std::visit(
      [&](const auto& options) {
        visit_fields(options, [&](const char* name, const auto& value, int64_t) {
          if (!is_off(options, name)) fields.emplace_back(name, text_of(value));
        });
      },
      shape);
  return fields;
}

std::string to_string(const ModelShape& shape) {
  std::string text = family_of(shape);
  for (const auto& [name, value] : fields_of(shape))
    text += (text.find(':') == std::string::npos ? ":" : ",") + name + '=' + value;
  return text;
}

ModelShape make_shape(const std::string& family, const Texts& values, const Texts& names) {
  if (family == "gpt2") return options_of<GPT2Options>(values, names);
  if (family == "llama") return options_of<TransformerLMOptions>(values, names);
  throw std::invalid_argument(family + " is not a family of models; known families: gpt2, llama");
}

ModelShape parse_shape(const std::string& text) {
  std::istringstream rest(text);
  std::string family, field;
  std::getline(rest, family, ':');
  try {
    Texts values;
    while (std::getline(rest, field, ',')) {
      const size_t equals = std::min(field.find('='), field.size() - 1);
      if (!values.emplace(field.substr(0, equals), field.substr(equals + 1)).second)
        throw std::invalid_argument(field.substr(0, equals) + " comes twice");
    }
    return make_shape(family, values);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument("model '" + text + "': " + error.what());
  }
}

}  // namespace fsdp
