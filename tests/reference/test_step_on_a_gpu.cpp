#include <comm/communicator.h>
#include <comm/communicator_options.h>
#include <cuda/process_group_transport.h>
#include <gtest/gtest.h>
#include <launch/rank_context.h>
#include <launch/shared_region.h>
#include <strategies/build_model.h>
#include <strategies/fsdp/fsdp_strategy.h>
#include <transports/backends.h>

#include <regex>

#include <common/in_a_process.h>
#include <common/operator_calls.h>
#include <common/process_group_of_one.h>

#include <task7_integration/tiny_training.h>

// Tests of what the CPU issues to a GPU in a step, without a GPU. NCCL is replaced by a process
// group that notes its calls, and the tensors are on the CPU.
namespace fsdp {
namespace {

using Counts = std::map<std::string, int>;
using Notes = ProcessGroupOfOne::Notes;

constexpr int kUnits = 4;  // number of units of the model: three blocks and the root

// A list of the calls of the process group that make_noted_transport() has made last, as texts.
std::shared_ptr<Notes> notes;

std::shared_ptr<Transport> make_noted_transport(const RankContext& /*context*/,
                                                std::shared_ptr<Ledger> ledger,
                                                std::chrono::milliseconds /*timeout*/) {
  notes = std::make_shared<Notes>();
  return make_process_group_transport(
      {"nccl", c10::make_intrusive<ProcessGroupOfOne>(notes), c10::kCPU}, std::move(ledger));
}

// Makes a process group of one rank. Returns the FSDP strategy of this rank.
std::unique_ptr<Strategy> strategy_of(const TrainConfig& config) {
  cuda_backend = {1, make_noted_transport, nullptr, c10::kCPU};
  CommunicatorOptions options;
  options.backend = "nccl";
  return make_fsdp_strategy(config, tiny_workload(config),
                            Communicator::create({0, 1, SharedRegion::create(1)}, options));
}

TrainConfig config_in(at::ScalarType param_dtype) {
  TrainConfig config = tiny_config(1);
  config.precision.policy.param_dtype = param_dtype;
  return config;
}

void train(Strategy& strategy, int64_t step) {
  strategy.forward_backward(step);
  strategy.step();
}

Counts operators_of_step(Strategy& strategy, int64_t step) {
  const OperatorCalls calls;
  train(strategy, step);
  return OperatorCalls::so_far();
}

// Returns for each operator how often forward and backward of a model that is not sharded call it.
Counts operators_of_model(const TrainConfig& config) {
  const auto model = build_model(config);
  model->to(config.precision.policy.param_dtype);
  const OperatorCalls calls;
  const at::Tensor loss = tiny_workload(config).loss(*model, 0, 1, 0);
  loss.backward(at::full_like(loss, 1));
  return OperatorCalls::so_far();
}

// Subtracts the calls of each operator in `others` from those in `counts`. Returns the differences
// that are not 0.
Counts beyond(const Counts& others, Counts counts) {
  for (const auto& [name, calls] : others)
    counts[name] -= calls;
  std::erase_if(counts, [](const auto& item) { return item.second == 0; });
  return counts;
}

TEST_IN_A_PROCESS(StepOnAGpu,
                  an_fsdp_step_on_a_gpu_adds_a_few_kernels_per_unit_to_those_of_the_model) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const auto strategy = strategy_of(config_in(dtype));
    train(*strategy, 0);
    // _foreach_copy_ copies the parameters' gradients into the flat gradient, once for each unit.
    Counts expected{{"_foreach_copy_", kUnits},
                    // _foreach_zero_ zeros the padding of the flat gradient, once for each unit.
                    {"_foreach_zero_", kUnits},
                    {"_foreach_add_", 1},  // increments the step count of AdamW
                    {"_fused_adamw_", 1},
                    {"cat", 1},        // joins the losses of the microbatches
                    {"_to_copy", 1}};  // converts the losses to double
    // Each all-gather first rounds the shard to the 16-bit dtype with one copy_. Forward gathers
    // all units; backward gathers all but the root.
    if (dtype != at::kFloat) expected["copy_"] = 2 * kUnits - 1;
    EXPECT_EQ(beyond(operators_of_model(config_in(dtype)), operators_of_step(*strategy, 1)),
              expected)
        << at::toString(dtype);
  }
}

// With two microbatches, gradients are reduced and divided once, after the last one.
TEST_IN_A_PROCESS(StepOnAGpu, the_sum_of_gradients_of_several_microbatches_is_divided_once) {
  TrainConfig config = config_in(at::kFloat);
  config.training.microbatches = 2;
  config.training.reduce_gradients = ReduceGradients::last;
  const auto strategy = strategy_of(config);
  train(*strategy, 0);
  const Counts counts = operators_of_step(*strategy, 1);
  EXPECT_EQ(counts.at("div_"), kUnits);
  EXPECT_EQ(counts.at("_fused_adamw_"), 1);
}

// An allocator that replaces the allocator of the CPU, and notes the sizes that are requested.
class NotingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    sizes.push_back(bytes);
    return inner_->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return inner_->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    inner_->copy_data(to, from, bytes);
  }

  std::vector<size_t> sizes;  // [bytes] the size of each request, in order

 private:
  c10::Allocator* inner_{c10::GetAllocator(c10::kCPU)};
};

// A caching allocator keeps freed memory. If each step asks for the same sizes in the same order,
// the allocator serves a later step without new memory.
TEST_IN_A_PROCESS(StepOnAGpu,
                  an_fsdp_step_allocates_the_sizes_of_the_step_before_in_the_same_order) {
  NotingAllocator allocator;
  c10::SetAllocator(c10::kCPU, &allocator, /*priority=*/255);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const auto strategy = strategy_of(config_in(dtype));
    // The first step allocates more: it records the order of units and makes the optimizer state.
    train(*strategy, 0);
    allocator.sizes.clear();
    train(*strategy, 1);
    const auto first = std::exchange(allocator.sizes, {});
    train(*strategy, 2);
    EXPECT_EQ(allocator.sizes, first) << at::toString(dtype);
    EXPECT_GT(first.size(), 100U);
  }
}

// Appends "compute" to the notes of the process group's calls when products of matrices run between
// two calls.
std::unique_ptr<at::ObserverContext> note_products(const at::RecordFunction& function) {
  const std::string name = function.name();
  const bool multiplies = name == "aten::addmm" || name == "aten::mm";
  if (multiplies && notes->back() != "compute") notes->emplace_back("compute");
  return nullptr;
}

// Returns the notes of a step: what the CPU would issue to a GPU's streams, in this order.
std::string told_in_step(Strategy& strategy, int64_t step) {
  notes->assign(1, "step");
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(note_products));
  train(strategy, step);
  at::removeCallback(handle);
  std::string text;
  for (const std::string& note : *notes)
    text += note + '\n';
  const std::string root = std::to_string(strategy.layout().units.front().padded_numel);
  text = std::regex_replace(text, std::regex(root), "root");
  return std::regex_replace(text, std::regex("[0-9]+"), "block");
}

// - A prefetched all-gather is issued before the kernels of the unit that computes meanwhile, so it
//   does not wait for these kernels. The stream waits for the all-gather after these kernels.
// - A reduce-scatter is issued before the kernels of the next unit. The stream waits for it after
//   these kernels.
// - The CPU never waits.
TEST_IN_A_PROCESS(StepOnAGpu,
                  a_step_issues_collectives_before_the_kernels_with_which_they_can_overlap) {
  const auto strategy = strategy_of(config_in(at::kFloat));
  train(*strategy, 0);
  EXPECT_EQ(told_in_step(*strategy, 1),
            "step\n"
            "gather root\nwait gather root\n"  // forward begins with the embeddings
            "gather block\nwait gather block\n"
            "gather block\ncompute\nwait gather block\n"
            "gather block\ncompute\nwait gather block\n"
            "compute\n"  // the last block, the head and the backward of the head compute
            "gather block\nwait gather block\n"
            "gather block\ncompute\nreduce block\nwait gather block\n"
            "gather block\ncompute\nwait reduce block\nreduce block\nwait gather block\n"
            "compute\nwait reduce block\nreduce block\n"
            "wait reduce block\nreduce root\nwait reduce root\n");
}

}  // namespace
}  // namespace fsdp
