#include <receipt/receipt.h>
#include <receipt/recomputation.h>

#include <set>

#include <common/expect_text.h>

#include "trained.h"

namespace fsdp {
namespace {

TrainConfig with_receipt(const Arranged& how, int64_t sample) {
  TrainConfig config = config_of(how, 4, 3);
  config.reports.receipt_sample = sample;
  return config;
}

// Trains with `config`, and returns the receipt of the run.
Receipt receipt_of(TrainConfig config) {
  const TemporaryFolder folder;
  config.reports.receipt = folder.path() + "/receipt";
  trained(config, folder);
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/receipt.ranks"));
  return read_receipt(config.reports.receipt);
}

// Computes again, in one process, the steps or the microbatch of `piece`. Returns the hashes of all
// events (tensors of a step) that this computation makes.
RunHashes computed(const Recomputation& piece, const std::string& checkpoint = "") {
  const TemporaryFolder folder;
  TrainConfig config = config_of({"single", 1}, 4, 3);
  config.reports.hashes = folder.path() + "/hashes";
  config.training.stop_after = piece.end_step;
  config.training.only_microbatch = piece.microbatch;
  config.checkpoint.resume = checkpoint;
  config.checkpoint.first_step = piece.first_step;
  trained(config, folder);
  return read_hashes(config.reports.hashes);
}

TEST(Receipt, receipts_of_every_mode_and_number_of_ranks_have_the_same_merkle_root) {
  const std::string root = receipt_of(with_receipt({"single", 1}, 8)).root();
  const std::vector<Arranged> all{{"single", 4}, {"ddp", 2},  {"ddp", 4},
                                  {"fsdp", 1},   {"fsdp", 2}, {"fsdp", 4, 2}};
  for (const Arranged& how : all)
    EXPECT_EQ(receipt_of(with_receipt(how, 8)).root(), root) << named(how);
}

TEST(Receipt, one_process_recomputes_all_events_that_a_receipt_has_of_a_microbatch_or_of_steps) {
  const Receipt receipt = receipt_of(with_receipt({"fsdp", 2}, 1));
  for (int microbatch = 0; microbatch < 4; ++microbatch) {
    const Recomputation piece{0, 1, microbatch};
    const Verdict verdict = compare_with(receipt, piece, computed(piece));
    EXPECT_EQ(verdict.wrong, "");
    EXPECT_GT(verdict.equal, 100);
  }
  const Recomputation all{0, 3, std::nullopt};
  const Verdict verdict = compare_with(receipt, all, computed(all));
  EXPECT_EQ(verdict.wrong, "");
  EXPECT_EQ(verdict.equal, static_cast<int64_t>(receipt.leaves.size()));
}

TEST(Receipt, an_audit_that_begins_with_a_checkpoint_also_compares_its_parameters) {
  const TemporaryFolder folder;
  TrainConfig config = with_receipt({"fsdp", 2}, 8);
  config.checkpoint.dir = folder.path() + "/saved";
  config.checkpoint.save_every = 2;
  Receipt receipt = receipt_of(config);
  const std::string checkpoint = step_folder(config.checkpoint.dir, 2);
  for (const auto microbatch : {std::optional<int>(3), std::optional<int>()}) {
    const Recomputation piece{2, 3, microbatch};
    EXPECT_EQ(compare_with(receipt, piece, computed(piece, checkpoint)).wrong, "");
  }
  receipt.leaves.at({1, -1, TensorKind::updated, "wte.weight"}).event.hash += 1;
  const Recomputation piece{2, 3, 0};
  EXPECT_EQ(compare_with(receipt, piece, computed(piece, checkpoint)).wrong,
            "step 3, unit root, parameter before the first step: wte.weight: the checkpoint has "
            "other values than the receipt");
}

TEST(Receipt, an_audit_finds_a_receipts_event_that_is_missing_added_or_changed) {
  const Receipt right = receipt_of(with_receipt({"fsdp", 2}, 1));
  const Recomputation piece{0, 3, std::nullopt};
  const RunHashes made = computed(piece);
  const EventKey key{1, 2, TensorKind::part, "h.1.mlp.c_fc.weight"};
  const std::string place =
      "step 2, microbatch 2, unit h.1, gradient of the microbatch: h.1.mlp.c_fc.weight";
  Receipt wrong = right;
  wrong.leaves.at(key).event.hash ^= 1;
  Verdict verdict = compare_with(wrong, piece, made);
  EXPECT_EQ(verdict.wrong, place);
  // Rank 0 has computed microbatch 2, as its second microbatch.
  EXPECT_EQ(verdict.ranks, std::vector<int>{0});
  wrong = right;
  wrong.leaves.erase(key);
  EXPECT_EQ(compare_with(wrong, piece, made).wrong, place + ": the receipt does not have it");
  std::erase_if(wrong.leaves, [](const auto& leaf) { return leaf.first.what == TensorKind::part; });
  EXPECT_CONTAINS(compare_with(wrong, piece, made).wrong, ": the receipt does not have it");
  wrong = right;
  wrong.leaves[{1, 2, TensorKind::part, "h.9"}] = right.leaves.at(key);
  EXPECT_CONTAINS(compare_with(wrong, piece, made).wrong, "h.9: nothing computes it");
  wrong = right;
  wrong.settings["lr"] = 0.5;
  EXPECT_THROW(compare_with(wrong, piece, made), std::invalid_argument);
}

TEST(Receipt, an_audit_recomputes_each_event_that_it_draws_from_the_start_or_a_checkpoint) {
  const Receipt receipt = receipt_of(with_receipt({"fsdp", 2}, 8));
  const size_t all = receipt.leaves.size();
  EXPECT_EQ(draw(receipt, all + 5, 1, {0}).events.size(), all);
  for (const std::set<int64_t>& known : {std::set<int64_t>{0}, {0, 1}, {0, 1, 2}}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const Draw drawn = draw(receipt, 4, seed, known);
      EXPECT_EQ(drawn.events, draw(receipt, 4, seed, known).events);
      EXPECT_EQ(std::set(drawn.events.begin(), drawn.events.end()).size(), 4U);
      for (const EventKey& key : drawn.events)
        EXPECT_TRUE(std::ranges::any_of(drawn.recomputations, [&](const Recomputation& piece) {
          return piece.covers(key) && known.contains(piece.first_step);
        }));
    }
  }
  EXPECT_THROW(draw(receipt, 1, 1, {}), std::invalid_argument);
}

TEST(Receipt, an_audit_draws_microbatches_only_of_the_first_step_and_of_steps_after_a_checkpoint) {
  const Receipt receipt = receipt_of(with_receipt({"fsdp", 2}, 8));
  const auto parts = receipt.settings.at("parts").get<size_t>();
  for (const std::set<int64_t>& known : {std::set<int64_t>{0}, {0, 2}}) {
    const size_t all = known.size() * parts;
    std::set<std::pair<int64_t, int>> drawn;
    for (const Recomputation& piece : draw_microbatches(receipt, all + 5, 1, known)) {
      EXPECT_TRUE(known.contains(piece.first_step));
      EXPECT_EQ(piece.end_step, piece.first_step + 1);
      drawn.emplace(piece.first_step, piece.microbatch.value());
    }
    EXPECT_EQ(drawn.size(), all);
    EXPECT_EQ(draw_microbatches(receipt, 2, 1, known).size(), 2U);
  }
  EXPECT_THROW(draw_microbatches(receipt, 1, 1, {}), std::invalid_argument);
}

}  // namespace
}  // namespace fsdp
