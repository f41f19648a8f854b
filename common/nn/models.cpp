#include <nn/models.h>

#include <algorithm>
#include <stdexcept>

namespace fsdp {
namespace {

struct Entry {
  Entry(std::string name, const ModelShape& model, int64_t batch = 32, int64_t steps = 5,
        double lr = 1e-4)
      : shape(model) {
    std::visit(
        [&](const auto& sizes) {
          const int64_t seq = std::min<int64_t>(127, std::max<int64_t>(sizes.context - 1, 1));
          info = {std::move(name), sizes.vocabulary, sizes.context, batch, seq, steps, lr};
        },
        model);
  }

  ModelInfo info;
  ModelShape shape;
};

GPT2Options gpt2(int64_t d_model, int64_t layers, int64_t heads) {
  return {50257, 1024, d_model, layers, heads, 4 * d_model};
}

const std::vector<Entry>& registry() {
  static const std::vector<Entry> models{
      // Order of the sizes in each entry: vocabulary, context, d_model, layers, heads, d_ff.
      {"small", TransformerLMOptions{1000, 256, 256, 4, 4, 1024}},
      {"medium", TransformerLMOptions{5000, 512, 512, 8, 8, 2048}},
      {"gpt2xl", TransformerLMOptions{50304, 1024, 1600, 48, 25, 6400}, 8, 10, 5e-4},
      // Nearly every size of gpt2-tiny is odd and not a multiple of 3, so that no size is divisible
      // by the number of ranks by accident.
      {"gpt2-tiny", GPT2Options{61, 19, 35, 3, 5, 121}},
      {"gpt2-36m", GPT2Options{20000, 1024, 512, 8, 8, 2048}},
      {"gpt2-124m", gpt2(768, 12, 12)},
      {"gpt2-355m", gpt2(1024, 24, 16)},
      {"gpt2-774m", gpt2(1280, 36, 20)},
      {"gpt2-1558m", gpt2(1600, 48, 25)},
      // The next four models are only for `./fsdp plan`. The duke-* models after them are those of
      // the student report "Reimplementing PyTorch FSDP" (Duke University).
      {"llama-7b", TransformerLMOptions{32000, 4096, 4096, 32, 32, 11008}},
      {"llama-13b", TransformerLMOptions{32000, 4096, 5120, 40, 40, 13824}},
      {"gpt3-175b", GPT2Options{50257, 2048, 12288, 96, 96, 49152}},
      {"1t", GPT2Options{50257, 2048, 25600, 128, 160, 102400}},
      {"duke-s", GPT2Options{16384, 1024, 512, 6, 8, 2048}},
      {"duke-m", GPT2Options{16384, 1024, 768, 12, 12, 3072}},
      {"duke-l", GPT2Options{16384, 1024, 1024, 16, 16, 4096}},
  };
  return models;
}

// Hugging Face's name -> this registry's name of the model with the same sizes.
const std::map<std::string, std::string> kAliases{{"gpt2", "gpt2-124m"},
                                                  {"gpt2-medium", "gpt2-355m"},
                                                  {"gpt2-large", "gpt2-774m"},
                                                  {"gpt2-xl", "gpt2-1558m"}};

const std::string kWithDropout = ":dropout=";

// Returns the entry of the model "NAME:dropout=P", where NAME is the name of a GPT-2. `colon`: the
// index of the colon in `name`.
Entry find_with_dropout(const std::string& name, size_t colon);

Entry find(const std::string& given) {
  const size_t colon = given.find(kWithDropout);
  if (colon != std::string::npos) return find_with_dropout(given, colon);
  const auto alias = kAliases.find(given);
  const std::string name = alias == kAliases.end() ? given : alias->second;
  std::string known;
  for (const auto& entry : registry()) {
    if (entry.info.name == name) return entry;
    known += entry.info.name + ", ";
  }
  if (name.find(':') != std::string::npos) return {name, parse_shape(name)};
  throw std::invalid_argument("model '" + name + "' is not known; known are " + known +
                              "and sizes, as llama:vocabulary=256,...");
}

Entry find_with_dropout(const std::string& name, size_t colon) {
  const Entry without = find(name.substr(0, colon));
  if (!std::holds_alternative<GPT2Options>(without.shape))
    throw std::invalid_argument("model '" + name + "': only a GPT-2 has dropout");
  Entry with = without;
  with.info.name = without.info.name + name.substr(colon);
  with.shape = parse_shape(to_string(without.shape) + ',' + name.substr(colon + 1));
  return with;
}

std::shared_ptr<Module> build(const TransformerLMOptions& options) {
  return std::make_shared<TransformerLM>(options);
}

std::shared_ptr<Module> build(const GPT2Options& options) {
  return std::make_shared<GPT2>(options);
}

}  // namespace

ModelInfo model_info(const std::string& name) {
  return find(name).info;
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& entry : registry())
    names.push_back(entry.info.name);
  return names;
}

ModelShape model_shape(const std::string& name) {
  return find(name).shape;
}

std::string model_name(const ModelShape& shape) {
  ModelShape without = shape;
  auto* gpt2 = std::get_if<GPT2Options>(&without);
  if (gpt2 != nullptr) gpt2->dropout = 0;
  const auto found = std::ranges::find(registry(), without, &Entry::shape);
  if (found == registry().end()) return to_string(shape);
  const bool has_dropout = shape != without;
  return found->info.name +
         (has_dropout ? kWithDropout + fields_of(shape).back().second : std::string());
}

std::map<std::string, std::string> tied_names(const std::string& name) {
  using Names = std::map<std::string, std::string>;
  const ModelShape shape = model_shape(name);
  const auto* llama = std::get_if<TransformerLMOptions>(&shape);
  if (llama == nullptr)
    return std::get<GPT2Options>(shape).tied_head ? Names{{"lm_head.weight", "wte.weight"}}
                                                  : Names{};
  if (llama->tied_head) return {{"lm_head.weight", "token_embeddings.weight"}};
  return {};
}

std::shared_ptr<Module> make_model(const std::string& name, int64_t vocabulary) {
  return std::visit(
      [&](auto options) {
        if (vocabulary > 0) options.vocabulary = vocabulary;
        return build(options);
      },
      find(name).shape);
}

at::Tensor language_model_loss(Module& model, const at::Tensor& inputs, const at::Tensor& targets) {
  const auto logits = model(inputs).flatten(0, 1).to(at::kFloat);
  return at::cross_entropy_loss(logits, targets.flatten());
}

}  // namespace fsdp
