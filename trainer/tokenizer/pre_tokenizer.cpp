#include <base/text.h>
#include <tokenizer/pre_tokenizer.h>

#include <stdexcept>
#include <string>

namespace fsdp {

PreTokenizer::PreTokenizer(const JsonValue& json) {
  if (json.is_null())
    json.refuse_kind("is null; only a pre_tokenizer of the type ByteLevel is read");
  if (json.member("type").text() != "Sequence") {
    add(json, true);
    return;
  }
  const JsonValue all = json.member("pretokenizers");
  const size_t count = all.size();
  if (count == 0)
    all.refuse_kind("is empty; only a pre_tokenizer that ends with ByteLevel is read");
  for (size_t i = 0; i < count; ++i)
    add(all.item(i), i + 1 == count);
}

void PreTokenizer::add(const JsonValue& json, bool last) {
  const JsonValue type = json.member("type");
  const std::string name = type.text();
  const bool byte_level = name == "ByteLevel";
  if (last && !byte_level)
    type.refuse_kind("is " + one_line(name) +
                     "; only a pre_tokenizer that ends with ByteLevel is read");
  if (byte_level && !last) type.refuse_kind("is ByteLevel, which is read only at the end");
  if (last) return add_byte_level(json);
  if (name == "Split") return add_split(json);
  if (name != "Digits")
    type.refuse_kind("is " + one_line(name) + "; only Split, Digits and ByteLevel are read");
  const bool single = json.member("individual_digits").flag(false);
  steps_.push_back({false, WordScanner(single ? R"(\p{N})" : R"(\p{N}+)")});
}

void PreTokenizer::add_byte_level(const JsonValue& json) {
  Step step{json.member("add_prefix_space").flag(true), std::nullopt};
  if (json.member("use_regex").flag(true)) step.scanner.emplace(kGPT2Pattern);
  steps_.push_back(std::move(step));
}

void PreTokenizer::add_split(const JsonValue& json) {
  const JsonValue behavior = json.member("behavior"), pattern = json.member("pattern");
  if (behavior.text() != "Isolated")
    behavior.refuse_kind("is " + one_line(behavior.text()) + "; only Isolated is read");
  if (json.member("invert").flag(false))
    json.member("invert").refuse_kind("is true; only false is read");
  const JsonValue regex = pattern.member("Regex");
  const std::string text = regex.text();
  try {
    steps_.push_back({false, WordScanner(text)});
  } catch (const std::runtime_error& error) {
    regex.refuse_kind(
        std::string(error.what()) +
        "; only the alternatives of the patterns of GPT-2, Llama 3 and Qwen are read");
  }
}

void PreTokenizer::split_from(size_t step, std::string_view text, const Visit& visit) const {
  if (text.empty()) return;
  if (step == steps_.size()) return visit(text);
  std::string longer;
  if (steps_[step].adds_prefix_space && text.front() != ' ') {
    longer = ' ' + std::string(text);
    text = longer;
  }
  if (!steps_[step].scanner) return split_from(step + 1, text, visit);
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    end = steps_[step].scanner->end_of_word(text, begin);
    split_from(step + 1, text.substr(begin, end - begin), visit);
  }
}

}  // namespace fsdp
