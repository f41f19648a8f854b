// Tries two ways to take a weight's memory away between forward and backward. Only one of them
// frees the memory.
#include <ATen/native/Resize.h>
#include <memory/counting_allocator.h>
#include <memory/live_bytes.h>
#include <torch/torch.h>

#include <iostream>

int main() {
  fsdp::counting_allocator::install();
  for (const bool swap : {true, false}) {
    const at::Tensor x = torch::ones({1, 32}).requires_grad_();
    const int64_t before = fsdp::live_bytes::now().total;
    auto report = [&](const char* when) {
      std::cout << "  " << when << ": " << fsdp::live_bytes::now().total - before << " bytes\n";
    };
    std::cout << (swap ? "set_data to a tensor full of 2:\n" : "storage to 0 bytes and back:\n");
    at::Tensor weight = torch::ones({32, 32}).requires_grad_();
    const at::Tensor loss = torch::linear(x, weight).sum();
    report("after forward    ");
    if (swap) {
      weight.set_data(torch::full({32, 32}, 2.0));
      report("after set_data   ");
    } else {
      const at::Tensor view = weight.detach().narrow(0, 0, 4);
      at::native::resize_bytes_nocuda(weight.storage(), 0);
      report("after resize to 0");
      std::cout << "  a view           : sizes " << view.sizes() << ", storage of "
                << view.storage().nbytes() << " bytes\n";
      try {
        (void)weight.t();
      } catch (const c10::Error& error) {
        const std::string text = error.what_without_backtrace();
        std::cout << "  weight.t() throws: ... " << text.substr(text.find("are out of")) << '\n';
      }
      at::native::resize_bytes_nocuda(weight.storage(), weight.nbytes());
      weight.variable_data().fill_(2);
      report("after regrowing  ");
      std::cout << "  the same view    : first element " << view[0][0].item<float>() << '\n';
    }
    loss.backward();  // d loss / d x[0] is the sum of the 32 weights that x[0] is multiplied with
    std::cout << "  gradient of x    : " << x.grad()[0][0].item<float>() << '\n';
  }
}
