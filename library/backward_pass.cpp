#include <backward_pass.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace fsdp {
namespace {

std::mutex mutex;
std::vector<std::function<void()>> late;
// Says whether this thread has called run_deferred_failures(), so that it is known to be a thread
// of the user and not one of the autograd engine.
thread_local bool is_users_thread = false;

// The callback that on_backward_end() queues for the end of a backward pass owns a Pass. If the
// backward pass throws, the engine destroys the callback without calling it. The destructor of Pass
// then runs `broken`, the function that on_backward_end() got for a pass that throws. But if the
// destructor is called on a thread of the engine, it stores `broken`, and the next
// run_deferred_failures() runs it.
struct Pass {
  explicit Pass(std::function<void()> function) : broken(std::move(function)) {}
  Pass(const Pass&) = delete;
  ~Pass() {
    if (broken && is_users_thread) {
      broken();
    } else if (broken) {
      const std::scoped_lock lock(mutex);
      late.push_back(std::move(broken));
    }
  }
  std::function<void()> broken;
};

}  // namespace

GradientTarget gradient_target(const torch::autograd::Node* node) {
  const auto* chosen = torch::autograd::get_current_graph_task_exec_info();
  if (chosen == nullptr || chosen->empty()) return {.grad = true};
  const auto found = chosen->find(const_cast<torch::autograd::Node*>(node));
  if (found == chosen->end()) return {};
  return {found->second.needed_, found->second.captures_ != nullptr};
}

bool in_backward() {
  return torch::autograd::get_current_node() != nullptr;
}

void on_backward_end(std::function<void()> ended, std::function<void()> broken) {
  const auto pass = std::make_shared<Pass>(std::move(broken));
  torch::autograd::Engine::get_default_engine().queue_callback([pass, ended = std::move(ended)] {
    pass->broken = nullptr;
    ended();
  });
}

void run_deferred_failures() {
  is_users_thread = true;
  std::vector<std::function<void()>> passes;
  {
    const std::scoped_lock lock(mutex);
    passes.swap(late);
  }
  for (const auto& broken : passes)
    broken();
}

}  // namespace fsdp
