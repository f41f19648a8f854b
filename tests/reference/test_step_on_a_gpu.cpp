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

// What the CPU does in a step for which a GPU would wait, counted without a GPU: NCCL is a process
// group that notes its calls, and the tensors are on the CPU.
namespace fsdp {
namespace {

using Counts = std::map<std::string, int>;
using Notes = ProcessGroupOfOne::Notes;

constexpr int kUnits = 4;  // three blocks and the root

std::shared_ptr<Notes> notes;  // of the group that was made last

std::shared_ptr<Transport> make_noted_transport(const RankContext& /*context*/,
                                                std::shared_ptr<Ledger> ledger,
                                                std::chrono::milliseconds /*timeout*/) {
  notes = std::make_shared<Notes>();
  return make_process_group_transport(
      {"nccl", c10::make_intrusive<ProcessGroupOfOne>(notes), c10::kCPU}, std::move(ledger));
}

// The strategy of a rank that has a process group of its own.
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

// Of the forward and backward of a model that nothing shards.
Counts operators_of_model(const TrainConfig& config) {
  const auto model = build_model(config);
  model->to(config.precision.policy.param_dtype);
  const OperatorCalls calls;
  const at::Tensor loss = tiny_workload(config).loss(*model, 0, 1, 0);
  loss.backward(at::full_like(loss, 1));
  return OperatorCalls::so_far();
}

// What `counts` has beyond `others`.
Counts beyond(const Counts& others, Counts counts) {
  for (const auto& [name, calls] : others)
    counts[name] -= calls;
  std::erase_if(counts, [](const auto& item) { return item.second == 0; });
  return counts;
}

TEST_IN_A_PROCESS(StepOnAGpu, adds_a_few_kernels_a_unit_to_those_of_the_model) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const auto strategy = strategy_of(config_in(dtype));
    train(*strategy, 0);
    Counts expected{{"_foreach_copy_", kUnits},  // the gradients into the flat one
                    {"_foreach_zero_", kUnits},  // its gaps, which a model of round sizes has not
                    {"_foreach_add_", 1},        // the number of the step
                    {"_fused_adamw_", 1},
                    {"cat", 1},        // the losses of the parts
                    {"_to_copy", 1}};  // to double
    // Each gather rounds the shard: all units in forward, all but the root in backward.
    if (dtype != at::kFloat) expected["copy_"] = 2 * kUnits - 1;
    EXPECT_EQ(beyond(operators_of_model(config_in(dtype)), operators_of_step(*strategy, 1)),
              expected)
        << at::toString(dtype);
  }
}

// Of several turns, each has the kernels of one; the sum over ranks is taken once.
TEST_IN_A_PROCESS(StepOnAGpu, divides_the_sum_of_several_parts_once) {
  TrainConfig config = config_in(at::kFloat);
  config.training.microbatches = 2;
  config.training.reduce_gradients = ReduceGradients::last;
  const auto strategy = strategy_of(config);
  train(*strategy, 0);
  const Counts counts = operators_of_step(*strategy, 1);
  EXPECT_EQ(counts.at("div_"), kUnits);
  EXPECT_EQ(counts.at("_fused_adamw_"), 1);
}

// In the place of the CPU's allocator: notes the sizes that it is asked for.
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

  std::vector<size_t> sizes;  // [bytes]

 private:
  c10::Allocator* inner_{c10::GetAllocator(c10::kCPU)};
};

// A caching allocator that has served a step serves the next one from what it keeps.
TEST_IN_A_PROCESS(StepOnAGpu, asks_for_the_memory_of_the_step_before_in_the_same_order) {
  NotingAllocator allocator;
  c10::SetAllocator(c10::kCPU, &allocator, /*priority=*/255);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const auto strategy = strategy_of(config_in(dtype));
    train(*strategy, 0);  // after it the order of the units is known, and there is optimizer state
    allocator.sizes.clear();
    train(*strategy, 1);
    const auto first = std::exchange(allocator.sizes, {});
    train(*strategy, 2);
    EXPECT_EQ(allocator.sizes, first) << at::toString(dtype);
    EXPECT_GT(first.size(), 100U);
  }
}

// Notes where matrices are multiplied between the calls of the group.
std::unique_ptr<at::ObserverContext> note_products(const at::RecordFunction& function) {
  const std::string name = function.name();
  const bool multiplies = name == "aten::addmm" || name == "aten::mm";
  if (multiplies && notes->back() != "compute") notes->emplace_back("compute");
  return nullptr;
}

// The notes of a step: what a GPU's stream would be told, in this order.
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

// A gather is issued before the kernels of the unit that computes meanwhile, so it waits for none
// of them; and the stream waits for it after them. A reduction likewise. Nothing stops the CPU.
TEST_IN_A_PROCESS(StepOnAGpu, has_each_collective_under_way_while_a_unit_computes) {
  const auto strategy = strategy_of(config_in(at::kFloat));
  train(*strategy, 0);
  EXPECT_EQ(told_in_step(*strategy, 1),
            "step\n"
            "gather root\nwait gather root\n"  // forward: first the embeddings
            "gather block\nwait gather block\n"
            "gather block\ncompute\nwait gather block\n"
            "gather block\ncompute\nwait gather block\n"
            "compute\n"  // the last block, the head, and the head's backward
            "gather block\nwait gather block\n"
            "gather block\ncompute\nreduce block\nwait gather block\n"
            "gather block\ncompute\nwait reduce block\nreduce block\nwait gather block\n"
            "compute\nwait reduce block\nreduce block\n"
            "wait reduce block\nreduce root\nwait reduce root\n");
}

}  // namespace
}  // namespace fsdp
