#include <nn/lora.h>

#include <cmath>
#include <functional>
#include <memory>
#include <regex>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

const std::string kLora = "lora";

// Returns [rank, in] values as torch::nn::Linear draws its weight by default: uniform between -1 /
// sqrt(in) and 1 / sqrt(in).
at::Tensor uniform(int64_t rank, int64_t in) {
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  return torch::empty({rank, in}).uniform_(-bound, bound);
}

void for_adaptable(torch::nn::Module& model,
                   const std::function<void(const std::string& name, Adaptable& layer)>& visit) {
  for (const auto& item : model.named_modules())
    if (auto* layer = dynamic_cast<Adaptable*>(item.value().get())) visit(item.key(), *layer);
}

// Returns the name of another module's parameter that is the weight of `layer`, for example
// "wte.weight" for a tied head; "" if no other module has it.
std::string tied_to(const torch::nn::Module& model, const std::string& layer,
                    const at::Tensor& weight) {
  for (const auto& item : model.named_parameters())
    if (item.value().is_same(weight) && item.key() != layer + ".weight") return item.key();
  return "";
}

}  // namespace

LoraAdapter::LoraAdapter(int64_t in, int64_t out, const LoraOptions& options)
    : scale_(options.alpha / static_cast<double>(options.rank)),
      a_(register_parameter("A", uniform(options.rank, in))),
      b_(register_parameter("B", torch::zeros({out, options.rank}))) {}

torch::Tensor LoraAdapter::forward(torch::Tensor x) {
  return at::linear(at::linear(x.to(a_.scalar_type()), a_), b_) * scale_;
}

at::Tensor LoraAdapter::delta() const {
  return b_.mm(a_) * scale_;
}

void Adaptable::add_lora(const LoraOptions& options) {
  if (lora_) throw std::logic_error("add_lora(): the layer has an adapter already");
  if (options.rank < 1 || !(options.alpha > 0))
    throw std::invalid_argument("add_lora(): the rank and alpha must be positive, not " +
                                std::to_string(options.rank) + " and " +
                                std::to_string(options.alpha));
  for (auto& parameter : layer().parameters(/*recurse=*/false))
    parameter.set_requires_grad(false);
  const torch::Tensor& weight = weight_to_adapt();
  lora_ = std::make_shared<LoraAdapter>(weight.size(1), weight.size(0), options);
  lora_->to(weight.device());
  layer().register_module(kLora, lora_);
}

void Adaptable::merge_lora() {
  if (!lora_ || std::exchange(merged_, true)) return;
  const at::NoGradGuard no_grad;
  weight_to_adapt().add_(lora_->delta());
}

void Adaptable::unmerge_lora() {
  if (!lora_ || !std::exchange(merged_, false)) return;
  const at::NoGradGuard no_grad;
  weight_to_adapt().sub_(lora_->delta());
}

torch::Tensor Adaptable::with_lora(const torch::Tensor& x, const torch::Tensor& y) const {
  return lora_ && !merged_ ? y + (*lora_)(x).to(y.scalar_type()) : y;
}

LoraLinear::LoraLinear(const torch::nn::Linear& base, const LoraOptions& options)
    : weight_(register_parameter("weight", base->weight)) {
  if (base->bias.defined()) bias_ = register_parameter("bias", base->bias);
  add_lora(options);
}

torch::Tensor LoraLinear::forward(torch::Tensor x) {
  return with_lora(x, at::linear(x, weight_, bias_));
}

std::vector<std::string> add_lora(torch::nn::Module& model, const std::string& pattern,
                                  const LoraOptions& options) {
  const std::regex names = [&] {
    try {
      return std::regex(pattern);
    } catch (const std::regex_error& error) {
      throw std::invalid_argument("add_lora(): '" + pattern +
                                  "' is not a regular expression: " + error.what());
    }
  }();
  std::vector<std::pair<std::string, Adaptable*>> layers;
  for_adaptable(model, [&](const std::string& name, Adaptable& layer) {
    if (std::regex_search(name, names)) layers.emplace_back(name, &layer);
  });
  if (layers.empty())
    throw std::invalid_argument("add_lora(): no layer that can have an adapter matches '" +
                                pattern + "'");
  for (const auto& [name, layer] : layers) {
    const std::string tied = tied_to(model, name, layer->weight());
    if (!tied.empty())
      throw std::invalid_argument("add_lora(): '" + pattern + "' matches " + name +
                                  ", whose weight is also " + tied +
                                  ": an adapter of one of the two could not be merged into it; "
                                  "choose a pattern that does not match " +
                                  name);
  }
  for (auto& item : model.named_parameters())
    if (!is_lora(item.key())) item.value().set_requires_grad(false);
  std::vector<std::string> adapted;
  for (const auto& [name, layer] : layers) {
    layer->add_lora(options);
    adapted.push_back(name);
  }
  return adapted;
}

void merge_lora(torch::nn::Module& model) {
  for_adaptable(model, [](const std::string&, Adaptable& layer) { layer.merge_lora(); });
}

void unmerge_lora(torch::nn::Module& model) {
  for_adaptable(model, [](const std::string&, Adaptable& layer) { layer.unmerge_lora(); });
}

bool is_lora(const std::string& parameter) {
  static const std::regex of_adapter("(^|\\.)lora\\.[AB]$");
  return std::regex_search(parameter, of_adapter);
}

}  // namespace fsdp
