#include <sequential.h>

namespace fsdp {

torch::Tensor Sequential::forward(torch::Tensor input) {
  for (const auto& module : modules_)
    input = (*module)(std::move(input));
  return input;
}

std::shared_ptr<Sequential> hookable(const std::shared_ptr<torch::nn::SequentialImpl>& theirs) {
  auto ours = std::make_shared<Sequential>();
  const auto children = theirs->named_children();
  for (size_t i = 0; i < children.size(); ++i)
    ours->push_back(children[i].key(), *(theirs->begin() + static_cast<int64_t>(i)));
  return ours;
}

std::shared_ptr<Sequential> hookable(const torch::nn::Sequential& theirs) {
  return hookable(theirs.ptr());
}

}  // namespace fsdp
