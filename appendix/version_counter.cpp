// Shows when backward() notices that a tensor which autograd has saved was written to: it throws,
// unless the write raised another version counter than that of the saved tensor.
#include <torch/torch.h>

#include <iostream>

// d(x w)/dx is w, so x.grad shows which values of w backward has read.
static void write_before_backward(const char* how,
                                  const std::function<void(at::Tensor& w)>& write) {
  at::Tensor w = torch::ones({2}).requires_grad_();
  const at::Tensor x = torch::ones({2}).requires_grad_();
  const at::Tensor loss = (x * w).sum();
  const auto saved_at = w._version();
  write(w);
  std::cout << how << ": version " << saved_at << " -> " << w._version() << ", ";
  try {
    loss.backward();
    std::cout << "gradient " << x.grad()[0].item<float>() << '\n';
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    std::cout << "throws \"..." << text.substr(text.find("modified by"), 32) << "...\"\n";
  }
}

int main() {
  const at::Tensor values = torch::full({2}, 5.0);
  write_before_backward("w.copy_(), NoGradGuard   ", [&](at::Tensor& w) {
    const at::NoGradGuard no_grad;
    w.copy_(values);
  });
  write_before_backward("w.detach()[0].fill_()    ", [](at::Tensor& w) { w.detach()[0].fill_(5); });
  write_before_backward("w.variable_data().copy_()",
                        [&](at::Tensor& w) { w.variable_data().copy_(values); });
  write_before_backward("w.set_data()             ", [&](at::Tensor& w) { w.set_data(values); });
}
