#include <base/torch.h>
#include <torch/csrc/autograd/graph_task.h>
#include <unrecorded_calls.h>

namespace fsdp {

bool UnrecordedCalls::run_again() {
  const bool in_pass = torch::autograd::get_current_graph_task_id() >= 0;
  if (!at::GradMode::is_enabled()) {
    if (!in_pass) ++calls_;
    return false;
  }
  if (!in_pass || calls_ == 0) return false;
  --calls_;
  return true;
}

}  // namespace fsdp
