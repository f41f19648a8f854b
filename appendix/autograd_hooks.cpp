// Prints in which order hooks run in a backward pass: a hook on an intermediate tensor, two hooks
// on a leaf, and a callback at the end of the pass.
#include <nn/gradient_hook.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/torch.h>

#include <iostream>

int main() {
  const at::Tensor w = torch::full({1}, 3.0).requires_grad_();
  auto say = [&](const std::string& what) {
    std::cout << "  pass " << torch::autograd::get_current_graph_task_id() << ": " << what
              << "; w.grad ";
    if (w.grad().defined())
      std::cout << w.grad().item<int>() << '\n';
    else
      std::cout << "undefined\n";
  };
  w.register_hook([&](const at::Tensor& gradient) {
    say("hook of w, given " + std::to_string(gradient.item<int>()));
  });
  fsdp::register_post_accumulate_grad_hook(w, [&] { say("post-accumulate hook of w"); });

  auto& engine = torch::autograd::Engine::get_default_engine();
  for (int step = 0; step < 2; ++step) {
    std::cout << "step " << step << ":\n";
    const at::Tensor h = w * 2;
    h.register_hook([&](const at::Tensor& gradient) {
      const std::string recording = at::GradMode::is_enabled() ? ", recording" : ", not recording";
      say("hook of h, given " + std::to_string(gradient.item<int>()) + recording);
      engine.queue_callback([&] { say("callback at the end"); });
    });
    (h * w).backward();  // the loss is h * w = 2 w^2, so it uses w twice
    say("backward() has returned");
  }

  try {
    engine.queue_callback([] {});
  } catch (const c10::Error& error) {
    std::cout << "queue_callback outside throws: " << error.what_without_backtrace() << '\n';
  }
}
