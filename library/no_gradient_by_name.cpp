#include <no_gradient_by_name.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <map>
#include <mutex>
#include <stdexcept>

namespace fsdp {
namespace {

using torch::autograd::Engine;

struct Leaves {
  std::mutex mutex;
  // AccumulateGrad node of a leaf -> name of the parameter, for each NoGradientByName that lives in
  // this process.
  std::map<const torch::autograd::Node*, std::string> parameters;
};

Leaves& leaves() {
  // `all`, the map of the leaves, is never destroyed: a static object may hold a model, whose
  // leaves are in the map, until the process ends.
  static auto& all = *new Leaves;
  return all;
}

void check_is_no_leaf(const torch::autograd::edge_list& asked_for) {
  Leaves& all = leaves();
  const std::scoped_lock lock(all.mutex);
  for (const torch::autograd::Edge& edge : asked_for) {
    const auto found = all.parameters.find(edge.function.get());
    if (found != all.parameters.end()) refuse_gradient_by_name(found->second);
  }
}

// An autograd engine that replaces torch's engine for all backward passes of this process. It
// throws if a pass asks for the gradient of a leaf of a NoGradientByName; else it lets torch's
// engine run the pass.
struct Looking : Engine {
  torch::autograd::variable_list execute(const torch::autograd::edge_list& roots,
                                         const torch::autograd::variable_list& inputs,
                                         bool keep_graph, bool create_graph, bool accumulate_grad,
                                         const torch::autograd::edge_list& outputs) override {
    check_is_no_leaf(outputs);
    return get_base_engine().execute(roots, inputs, keep_graph, create_graph, accumulate_grad,
                                     outputs);
  }
  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<torch::autograd::GraphTask>& graph_task,
      std::shared_ptr<torch::autograd::Node> graph_root,
      torch::autograd::InputBuffer&& input_buffer) override {
    return get_base_engine().execute_with_graph_task(graph_task, std::move(graph_root),
                                                     std::move(input_buffer));
  }
};

Engine& looking_engine() {
  // This autograd engine is never destroyed. It has no threads that a destructor would have to
  // join.
  static auto& engine = *new Looking;
  return engine;
}

}  // namespace

NoGradientByName::NoGradientByName(const at::Tensor& leaf, const std::string& parameter) {
  const bool trainable = leaf.requires_grad();
  // A frozen leaf has no AccumulateGrad node, so the leaf requires a gradient while this
  // constructor asks for the node.
  leaf.set_requires_grad(true);
  accumulator_ = torch::autograd::impl::grad_accumulator(leaf);
  leaf.set_requires_grad(trainable);
  {
    const std::scoped_lock lock(leaves().mutex);
    leaves().parameters[accumulator_.get()] = parameter;
  }
  torch::autograd::set_default_engine_stub(looking_engine);
}

NoGradientByName::~NoGradientByName() {
  const std::scoped_lock lock(leaves().mutex);
  leaves().parameters.erase(accumulator_.get());
}

void refuse_gradient_by_name(const std::string& parameter) {
  throw std::logic_error("autograd::grad() of parameter " + parameter +
                         ", which is sharded, would be of this rank's batch alone; run "
                         "backward() without inputs, and take .grad of model.parameters()");
}

}  // namespace fsdp
