#include <nn/gradient_hook.h>
#include <task4_backward_hooks/sharded_model.h>
#include <testing/provenance.h>

#include "small_model.h"

namespace fsdp {
namespace {

// Counts the calls of hooks by which autograd signals the progress of one module.
struct Signals {
  explicit Signals(Module& module) {
    module.register_full_backward_pre_hook([this](Module&) { ++outputs; });
    module.register_full_backward_hook([this](Module&) { ++markers; });
    for (const auto& item : module.named_parameters(/*recurse=*/false)) {
      counts[item.key()] = 0;
      register_post_accumulate_grad_hook(item.value(),
                                         [this, name = item.key()] { ++counts[name]; });
    }
  }

  // Returns for which parameters the hook has run: "each once", "none" or "all except that of
  // `spare`".
  std::string of_parameters() const {
    std::string missing;
    size_t once = 0;
    for (const auto& [name, count] : counts) {
      if (count == 1) ++once;
      if (count == 0) missing += "`" + name + "`";
    }
    if (once == counts.size()) return "each once";
    return once == 0 ? "none" : "all except that of " + missing;
  }

  int outputs{}, markers{};
  std::map<std::string, int> counts;  // name of a parameter -> number of calls of its hook
};

// Returns what Signals counts for the middle block (for the root if `of_root`) in a backward pass
// of this loss.
Values signals(const std::function<at::Tensor(ToyModel&)>& loss, bool of_root = false) {
  return observed_on(1, [&](TestRank& rank) {
    ToyModel model(3);
    const Signals signals(of_root ? static_cast<Module&>(model) : *model.blocks[1]);
    loss(model).backward();
    rank.observe("outputs", signals.outputs);
    rank.observe("parameters", signals.of_parameters());
    rank.observe("markers", signals.markers);
  });
}

at::Tensor loss_of(ToyModel& model) {
  return plain_loss(model, 0);
}

TEST(HandoutOfTask4,
     the_answer_to_prediction_1_of_task_4_has_the_hook_calls_of_a_block_in_backward) {
  const std::string row = "{outputs} | {parameters} | {markers}";
  expect_said(4, signals(loss_of), "| as usual | " + row + " |");
  expect_said(4, signals([](ToyModel& model) {
                model.blocks[1]->use_spare = false;
                return loss_of(model);
              }),
              "| `spare` unused | " + row + " |");
  expect_said(4, signals([](ToyModel& model) {
                model.order = {0, 2};
                return loss_of(model);
              }),
              "| unused | " + row + " |");
  expect_said(4, signals([](ToyModel& model) {
                (*model.blocks[1])(at::ones({1, 7}).requires_grad_(true));
                return loss_of(model);
              }),
              "| one output not in the loss | " + row + ", for 2 calls |");
  expect_said(4, signals([](ToyModel& model) {
                for (auto& parameter : model.blocks[1]->parameters())
                  parameter.set_requires_grad(false);
                return loss_of(model);
              }),
              "| frozen | " + row + " |");
  expect_said(4, signals(loss_of, true), "| root | " + row + ": ids need no gradient |");
}

TEST(HandoutOfTask4,
     the_answer_to_prediction_1_of_task_4_has_the_hook_calls_of_a_block_that_is_used_twice) {
  const Values twice = signals([](ToyModel& model) {
    model.order = {0, 1, 1, 2};
    return loss_of(model);
  });
  EXPECT_EQ(twice, signals([](ToyModel& model) { return loss_of(model) + plain_loss(model, 1); }));
  expect_said(4, twice,
              "| used twice; two forwards | {outputs} | {parameters}, before the second M | "
              "{markers} |");
}

TEST(HandoutOfTask4,
     the_answer_to_prediction_2_of_task_4_lists_the_collectives_of_a_backward_pass) {
  const Values run = observed_on(2, [](TestRank& rank) {
    Sharded sharded(rank, 3);
    const at::Tensor loss = plain_loss(*sharded.model, rank.rank());
    int64_t forward = 0, backward = 0;
    for (const Call& call : rank.communicator()->take_log())
      forward += call.bytes;
    loss.backward();
    std::string calls;
    for (const Call& call : rank.communicator()->take_log()) {
      backward += call.bytes;
      calls += (calls.empty() ? "" : "; ") + call.name();
    }
    rank.observe("calls", calls);
    rank.observe("backward", backward);
    rank.observe("step", forward + backward);
  });
  expect_said(4, run,
              "`{calls}`. In these 7 collectives a rank receives 7 x 1/2 x 96 x 4 = {backward} "
              "bytes. Together with the four all-gathers of forward, it receives {step} bytes,");
}

TEST(HandoutOfTask4,
     the_answer_to_prediction_3_of_task_4_has_the_received_and_gathered_bytes_of_the_model_small) {
  Values costs = costs_of_small(4, true, 1);
  const Values kept = costs_of_small(4, false, 1);
  const auto fsdp = costs["received"].get<int64_t>(), without = kept.at("received").get<int64_t>();
  EXPECT_EQ(kept.at("elements"), 4'708'608);
  costs["received, kept"] = without;
  costs["gathered, kept"] = kept.at("gathered");
  costs["more"] = fsdp - without;
  costs["ratio"] = rounded(static_cast<double>(fsdp) / static_cast<double>(without), 3);
  expect_said(
      4, costs,
      "With FSDP a rank receives 3/4 x 4 x (3N - R) = {received} bytes. Without resharding "
      "it receives 3/4 x 4 x 2N = {received, kept} bytes, and with DDP it receives the same "
      "{DDP}.");
  expect_said(4, costs, "The ratio of the first number to the second is {ratio} and");
  expect_said(
      4, costs,
      "unsharded, {gathered} bytes. Without resharding, all units are unsharded, "
      "{gathered, kept} bytes. So resharding has a price and a gain: a rank receives {more} bytes "
      "more in each step, and at the peak {more} bytes fewer are unsharded.");
  EXPECT_EQ(costs["more"], kept.at("gathered").get<int64_t>() - costs["gathered"].get<int64_t>());
}

TEST(HandoutOfTask4,
     the_answer_to_prediction_4_of_task_4_names_the_ranks_that_a_wrong_mean_lacks_or_counts_twice) {
  const Values values{{"mean", provenance::mean(3)}};
  expect_said(4, values, "1 + 5 + 25 = {mean}, and in base 5 this is 111.");
  expect_said(4, values,
              "6 is 011: rank 2 is missing. 56 is 211: rank 2 was counted twice. 93 is 3 x {mean}: "
              "the sum, not the mean.");
  EXPECT_EQ(provenance::decode(6, 3), "rank 2's gradient is missing");
  EXPECT_EQ(provenance::decode(56, 3), "rank 2 is counted twice");
  EXPECT_EQ(provenance::decode(93, 3), "the sum, not the mean: exactly 3 times too large");
}

}  // namespace
}  // namespace fsdp
