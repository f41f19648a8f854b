// Shows what tensors without memory (device meta) can do, which calls on them throw, and how such a
// tensor gets real data.
#include <memory/counting_allocator.h>
#include <memory/live_bytes.h>
#include <torch/torch.h>

#include <iostream>

int main() {
  fsdp::counting_allocator::install();
  const at::Tensor weight = torch::empty({1'000'000, 1'000}, torch::kMeta).requires_grad_();
  std::cout << "nbytes " << weight.nbytes() << ", alive " << fsdp::live_bytes::now().total << '\n';
  const at::Tensor y = torch::linear(torch::ones({4, 1'000}, torch::kMeta), weight);
  std::cout << "linear gives sizes " << y.sizes() << " on " << y.device() << '\n';
  const at::Tensor generator = at::detail::getDefaultCPUGenerator().get_state();

  auto attempt = [](const char* what, const std::function<void()>& action) {
    std::cout << what << ": ";
    try {
      action();
      std::cout << "works\n";
    } catch (const c10::Error& error) {
      const std::string text = error.what_without_backtrace();
      std::cout << "throws \"" << text.substr(0, 70) << (text.size() > 70 ? "...\"\n" : "\"\n");
    }
  };
  attempt("backward()", [&] { y.sum().backward(); });
  attempt("normal_() ", [&] { weight.detach().normal_(); });
  const bool moved = !generator.equal(at::detail::getDefaultCPUGenerator().get_state());
  std::cout << "            the generator has moved: " << (moved ? "yes" : "no") << '\n';
  attempt("data_ptr()", [&] { weight.data_ptr<float>(); });
  attempt("item()    ", [&] { y.sum().item<float>(); });
  attempt("to(kCPU)  ", [&] { (void)weight.to(torch::kCPU); });
  attempt("Linear.to ", [&] { torch::nn::Linear(2, 2)->to(torch::kMeta); });

  at::Tensor small = torch::empty({2}, torch::kMeta).requires_grad_();
  const at::Tensor handle = small;
  const at::Tensor real = torch::tensor({1.0F, 2.0F});
  attempt("set_data  ", [&] { small.set_data(real); });
  small.unsafeGetTensorImpl()->shallow_copy_from(real.getIntrusivePtr());
  std::cout << "after shallow_copy_from, another handle: " << handle.device() << ", sum "
            << handle.sum().item<float>() << ", requires_grad " << handle.requires_grad() << '\n';
}
