#include <ATen/CPUGeneratorImpl.h>
#include <nn/generate.h>

#include <algorithm>

namespace fsdp {

at::Tensor logits_of(Module& model, const std::vector<int64_t>& tokens, int64_t context) {
  const at::NoGradGuard no_grad;
  const auto length = std::min<int64_t>(context, static_cast<int64_t>(tokens.size()));
  const auto first = tokens.end() - static_cast<std::ptrdiff_t>(length);
  const at::Tensor input = torch::empty({1, length}, at::kLong);
  std::copy(first, tokens.end(), input.mutable_data_ptr<int64_t>());
  return model(input)[0];
}

int64_t generate(Module& model, std::vector<int64_t> tokens, int64_t count,
                 const GenerateOptions& options, const std::function<void(int64_t token)>& visit) {
  const at::NoGradGuard no_grad;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(options.seed);
  for (int64_t i = 0; i < count; ++i) {
    const at::Tensor last = logits_of(model, tokens, options.context)[-1];
    const at::Tensor logits = last.narrow(0, 0, std::min(options.ids, last.numel()));
    at::Tensor next = logits.argmax();
    if (options.temperature) {
      // Subtracts the largest logit before the division by the temperature, so that even a very low
      // temperature does not cause an overflow.
      const at::Tensor scaled = (logits.to(at::kDouble) - logits.max()) / *options.temperature;
      next = at::multinomial(at::softmax(scaled, 0), 1, /*replacement=*/false, generator);
    }
    tokens.push_back(next.item<int64_t>());
    if (std::ranges::find(options.end_tokens, tokens.back()) != options.end_tokens.end()) return i;
    visit(tokens.back());
  }
  return count;
}

}  // namespace fsdp
