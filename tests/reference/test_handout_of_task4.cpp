#include <nn/gradient_hook.h>
#include <task4_backward_hooks/sharded_model.h>
#include <testing/provenance.h>

#include "handout.h"
#include "small_model.h"

namespace fsdp {
namespace {

// Counts the signals that autograd gives for one module.
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

  // "each once", "none", "all except that of `spare`"
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

  std::string row() const {
    return std::to_string(outputs) + " | " + of_parameters() + " | " + std::to_string(markers);
  }

  int outputs{}, markers{};
  std::map<std::string, int> counts;  // of each parameter
};

// What the block in the middle, or the root, gives in a pass over this loss.
std::string signals(const std::function<at::Tensor(ToyModel&)>& loss, bool of_root = false) {
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    ToyModel model(3);
    const Signals signals(of_root ? static_cast<Module&>(model) : *model.blocks[1]);
    loss(model).backward();
    rank.observe("row", signals.row());
  });
  return run.at(0, "row").get<std::string>();
}

at::Tensor loss_of(ToyModel& model) {
  return plain_loss(model, 0);
}

TEST(HandoutOfTask4, prediction_1_lists_the_signals_of_a_block) {
  expect_said(4, "| as usual | " + signals(loss_of) + " |");
  expect_said(4, "| `spare` unused | " + signals([](ToyModel& model) {
                   model.blocks[1]->use_spare = false;
                   return loss_of(model);
                 }) + " |");
  expect_said(4, "| unused | " + signals([](ToyModel& model) {
                   model.order = {0, 2};
                   return loss_of(model);
                 }) + " |");
  expect_said(4, "| one output not in the loss | " + signals([](ToyModel& model) {
                   (*model.blocks[1])(at::ones({1, 7}).requires_grad_(true));
                   return loss_of(model);
                 }) + ", for 2 calls |");
  expect_said(4, "| frozen | " + signals([](ToyModel& model) {
                   for (auto& parameter : model.blocks[1]->parameters())
                     parameter.set_requires_grad(false);
                   return loss_of(model);
                 }) + " |");
  expect_said(4, "| root | " + signals(loss_of, /*of_root=*/true) + ": ids need no gradient |");
}

TEST(HandoutOfTask4, prediction_1_lists_the_signals_of_a_block_used_twice) {
  const std::string twice = signals([](ToyModel& model) {
    model.order = {0, 1, 1, 2};
    return loss_of(model);
  });
  const std::string two_forwards =
      signals([](ToyModel& model) { return loss_of(model) + plain_loss(model, 1); });
  EXPECT_EQ(twice, two_forwards);
  const std::string words = "each once";
  std::string row = "| used twice; two forwards | " + twice + " |";
  row.replace(row.find(words), words.size(), words + ", before the second M");
  expect_said(4, row);
}

TEST(HandoutOfTask4, prediction_2_lists_the_collectives_of_backward) {
  const RankRun run = run_ranks(2, [](TestRank& rank) {
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
    rank.observe("backward", with_commas(backward));
    rank.observe("step", with_commas(forward + backward));
  });
  const auto at = [&](const std::string& name) { return run.at(0, name).get<std::string>(); };
  expect_said(4, "`" + at("calls") + "`: 7 x 1/2 x 96 x 4 = " + at("backward") +
                     ". With the four all-gathers of forward, " + at("step") + " =");
}

TEST(HandoutOfTask4, prediction_3_counts_the_bytes_of_the_model_small) {
  const RankRun run = run_ranks(4, [](TestRank& rank) {
    for (const bool reshard : {true, false}) {
      const SmallModel small(rank, reshard, 1);
      live_bytes::enter(Phase::forward);
      int64_t bytes = 0;
      for (const auto& [operation, received] : small.step())
        bytes += received;
      const std::string how = reshard ? "resharded" : "kept";
      rank.observe("bytes, " + how, bytes);
      rank.observe("peak, " + how, live_bytes::peak()[MemoryClass::gathered]);
      rank.observe("elements, " + how, small.sharded->layout().numel());
    }
    rank.communicator()->take_log();
    const at::Tensor gradients = at::ones({4'708'608});
    rank.communicator()->all_reduce(gradients, "all").wait();
    rank.observe("bytes of DDP", rank.communicator()->take_log().at(0).bytes);
  });
  const auto at = [&](const std::string& name) { return run.at(0, name).get<int64_t>(); };
  const int64_t fsdp = at("bytes, resharded"), kept = at("bytes, kept");
  EXPECT_EQ(at("elements, kept"), 4'708'608);
  expect_said(4, "3/4 x 4 x (3N - R) = " + with_commas(fsdp) +
                     "; 3/4 x 4 x 2N = " + with_commas(kept) + "; with DDP the same " +
                     with_commas(at("bytes of DDP")) + ".");
  expect_said(4, "The ratio is " +
                     rounded(static_cast<double>(fsdp) / static_cast<double>(kept), 3) + " and");
  expect_said(4, "unsharded, " + with_commas(at("peak, resharded")) +
                     " bytes; without resharding all units are, " + with_commas(at("peak, kept")) +
                     ". So FSDP sends " + with_commas(fsdp - kept) +
                     " more bytes, and keeps as many fewer bytes alive.");
  EXPECT_EQ(fsdp - kept, at("peak, kept") - at("peak, resharded"));
}

TEST(HandoutOfTask4, prediction_4_reads_which_ranks_are_counted) {
  const int64_t mean = provenance::mean(3);
  expect_said(4, "1 + 5 + 25 = " + std::to_string(mean) + ", in base 5 111.");
  expect_said(4, "6 is 011: rank 2 is missing. 56 is 211: rank 2 was counted twice. 93 is 3 x " +
                     std::to_string(mean) + ": the sum, not the mean.");
  EXPECT_EQ(provenance::decode(6, 3), "rank 2's gradient is missing");
  EXPECT_EQ(provenance::decode(56, 3), "rank 2 is counted twice");
  EXPECT_EQ(provenance::decode(93, 3), "the sum, not the mean: exactly 3 times too large");
}

}  // namespace
}  // namespace fsdp
