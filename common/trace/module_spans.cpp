#include <torch/csrc/autograd/engine.h>
#include <trace/module_spans.h>
#include <trace/recorder.h>

#include <set>
#include <vector>

namespace fsdp {
namespace {

// The spans of one kind (forward or backward) that a module has begun and not ended. end() ends the
// span that began last.
class OpenSpans {
 public:
  OpenSpans(EventKind kind, std::string name) : kind_(kind), name_(std::move(name)) {}

  void begin() { open_.push_back(begin_span(kind_, name_)); }
  void end() {
    if (open_.empty()) return;
    end_span(open_.back());
    open_.pop_back();
  }

 private:
  EventKind kind_;
  std::string name_;
  std::vector<uint64_t> open_;
};

void record_forward(Module& module, const std::string& name) {
  auto spans = std::make_shared<OpenSpans>(EventKind::forward, name);
  module.register_forward_pre_hook([spans](Module&, const at::Tensor&) {
    spans->begin();
    return at::Tensor();
  });
  module.register_forward_hook([spans](Module&, const at::Tensor&) {
    spans->end();
    return at::Tensor();
  });
}

void record_backward(Module& module, const std::string& name) {
  auto spans = std::make_shared<OpenSpans>(EventKind::backward, name);
  module.register_full_backward_pre_hook([spans](Module&) { spans->begin(); });
  module.register_full_backward_hook([spans](Module&) { spans->end(); });
}

// Records the backward of `root`. At the end of the backward pass, a callback queues a second
// callback, which ends the root's span. So the span ends after all callbacks that were queued
// during the pass.
void record_root_backward(Module& root) {
  auto spans = std::make_shared<OpenSpans>(EventKind::backward, "root");
  root.register_full_backward_pre_hook([spans](Module&) {
    spans->begin();
    auto& engine = torch::autograd::Engine::get_default_engine();
    engine.queue_callback([spans, &engine] { engine.queue_callback([spans] { spans->end(); }); });
  });
}

}  // namespace

void record_module_spans(Module& root) {
  if (Recorder::current() == nullptr) return;
  record_forward(root, "root");
  record_root_backward(root);
  std::set<Module*> seen;  // a module that is listed twice is recorded under its first name
  for (const auto& list : root.named_modules("", /*include_self=*/false)) {
    if (!list.value()->as<torch::nn::ModuleList>()) continue;
    for (const auto& child : list.value()->named_children()) {
      auto* module = dynamic_cast<Module*>(child.value().get());
      if (module == nullptr || !seen.insert(module).second) continue;
      record_forward(*module, list.key() + "." + child.key());
      record_backward(*module, list.key() + "." + child.key());
    }
  }
}

}  // namespace fsdp
