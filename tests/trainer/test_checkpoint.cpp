#include <state/checkpoint.h>
#include <state/checkpoint_folder.h>
#include <task5_sharded_optimizer/each_element.h>
#include <testing/multi_rank.h>

#include <filesystem>

#include <common/temporary_folder.h>
#include "saved_state.h"

namespace fsdp {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

const Json kRun{{"model", "none"}};

void save(TestRank& rank, const std::string& folder, CheckpointFormat format, int64_t step = 3) {
  save_checkpoint(folder, format, step, kRun, cut_state(rank.rank(), rank.world_size()),
                  *rank.communicator());
}

// What load_checkpoint() says; "loaded" if nothing.
std::string load(TestRank& rank, const std::string& folder, const ModelState& state,
                 const Locate& locate = each_element) {
  try {
    load_checkpoint(folder, state, locate, *rank.communicator());
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "loaded";
}

const std::vector<std::pair<std::string, CheckpointFormat>> kFormats{
    {"sharded", CheckpointFormat::sharded}, {"full", CheckpointFormat::full}};

MULTI_RANK_SUITE(CheckpointOf);

MULTI_RANK_TEST(CheckpointOf, any_number_of_ranks_fills_the_ranges_of_any_other) {
  const TemporaryFolder folder;
  run_ranks(world_size(), [&](TestRank& rank) {
    for (const auto& [name, format] : kFormats)
      save(rank, folder.path() + '/' + name, format);
  });
  for (int ranks = 1; ranks <= 4; ++ranks) {
    const RankRun run = run_ranks(ranks, [&](TestRank& rank) {
      for (const auto& [name, format] : kFormats) {
        const Checkpoint found = find_checkpoint(folder.path() + '/' + name);
        EXPECT_EQ(found.step, 3);
        EXPECT_EQ(found.run, kRun);
        const ModelState cut = cut_state(rank.rank(), ranks, true), copied = whole_state(true);
        rank.observe(name, load(rank, found.folder, cut));
        rank.observe(name + ", copied", load(rank, found.folder, copied));
        rank.observe(name + ": equal",
                     equal(cut, cut_state(rank.rank(), ranks)) && equal(copied, whole_state()));
      }
    });
    for (const auto& [name, format] : kFormats) {
      expect_on_all_ranks(run, name, "loaded");
      expect_on_all_ranks(run, name + ", copied", "loaded");
      expect_on_all_ranks(run, name + ": equal", true);
    }
  }
}

// So a stack without locate() goes on with the same ranks, and in one process.
MULTI_RANK_TEST(CheckpointOf, as_many_ranks_needs_no_locate) {
  const TemporaryFolder folder;
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    save(rank, folder.path(), CheckpointFormat::sharded);
    const std::string saved = step_folder(folder.path(), 3);
    const ModelState cut = cut_state(rank.rank(), rank.world_size(), true);
    const ModelState copied = whole_state(true);
    rank.observe("cut", load(rank, saved, cut, nullptr));
    rank.observe("copied", load(rank, saved, copied, nullptr));
    rank.observe("equal", equal(cut, cut_state(rank.rank(), rank.world_size())) &&
                              equal(copied, whole_state()));
  });
  expect_on_all_ranks(run, "cut", "loaded");
  expect_on_all_ranks(run, "copied", "loaded");
  expect_on_all_ranks(run, "equal", true);
}

MULTI_RANK_TEST(CheckpointOf, any_ranks_changes_nothing_if_one_rank_locates_nothing) {
  const TemporaryFolder folder;
  run_ranks(world_size(),
            [&](TestRank& rank) { save(rank, folder.path(), CheckpointFormat::sharded); });
  const int more = world_size() + 1;  // so that the last rank needs a part of a saved range
  const RankRun run = run_ranks(more, [&](TestRank& rank) {
    const Locate locate = [&](const ElementRange& range, const std::vector<ElementRange>& saved) {
      if (rank.rank() == more - 1) throw std::invalid_argument(range.parameter + " is nowhere");
      return each_element(range, saved);
    };
    const ModelState state = cut_state(rank.rank(), more, true);
    rank.observe("load", load(rank, step_folder(folder.path(), 3), state, locate));
    rank.observe("unchanged", equal(state, cut_state(rank.rank(), more, true)));
  });
  expect_on_all_ranks(run, "load", "a.weight is nowhere");
  expect_on_all_ranks(run, "unchanged", true);
}

// Also where a run that broke off has left another one.
MULTI_RANK_TEST(CheckpointOf, ranks_that_hold_copies_has_one_file) {
  const TemporaryFolder folder;
  folder.write("step-000003.part/rank-0008-of-0009.safetensors", "");
  run_ranks(world_size(), [&](TestRank& rank) {
    save_checkpoint(folder.path(), CheckpointFormat::sharded, 3, kRun, whole_state(),
                    *rank.communicator());
  });
  int files = 0;
  for (const auto& entry : fs::directory_iterator(step_folder(folder.path(), 3)))
    files += entry.path().extension() == ".safetensors";
  EXPECT_EQ(files, 1);
}

MULTI_RANK_TEST(CheckpointOf, any_ranks_appears_when_all_of_them_have_written) {
  const TemporaryFolder folder;
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    for (const auto& [name, format] : kFormats) {
      ModelState state = cut_state(rank.rank(), rank.world_size());
      // Half of the bytes that the file should have. In the full format rank 0 writes.
      const int failing = name == "full" ? 0 : rank.world_size() - 1;
      if (rank.rank() == failing) state.ranges[0].value = state.ranges[0].value.to(at::kHalf);
      try {
        save_checkpoint(folder.path(), format, 3, kRun, state, *rank.communicator());
      } catch (const std::runtime_error& error) {
        rank.observe(name, error.what());
      }
      rank.observe("steps there: " + name, latest_step(folder.path()).has_value());
    }
  });
  for (const auto& [name, format] : kFormats) {
    expect_same_on_all_ranks(run, name);
    expect_error_says(run.at(0, name), "bytes are missing");
    expect_on_all_ranks(run, "steps there: " + name, false);
  }
}

MULTI_RANK_TEST(CheckpointOf, a_step_that_is_there_is_not_overwritten) {
  const TemporaryFolder folder;
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    save(rank, folder.path(), CheckpointFormat::sharded);
    try {
      save(rank, folder.path(), CheckpointFormat::sharded);
    } catch (const std::runtime_error& error) {
      rank.observe("refused", error.what());
    }
  });
  expect_on_all_ranks(run, "refused", step_folder(folder.path(), 3) + ": is there already");
}

TEST(CheckpointFolder, keeps_the_latest_and_removes_what_a_broken_run_has_left) {
  const TemporaryFolder folder;
  for (const std::string name : {"step-000001", "step-000002", "step-000010", "step-1000000",
                                 "step-000011.part", "step-7", "notes"})
    folder.write(name + "/file", "");
  EXPECT_EQ(latest_step(folder.path()), 1000000);
  remove_old_checkpoints(folder.path(), 2);
  std::set<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder.path()))
    left.insert(entry.path().filename());
  EXPECT_EQ(left, (std::set<std::string>{"step-000010", "step-1000000", "step-7", "notes"}));
}

TEST(CheckpointFolder, that_has_no_checkpoint_is_refused) {
  const TemporaryFolder folder;
  folder.write("step-000001.part/checkpoint.json", "{}");
  EXPECT_EQ(latest_step(folder.path()), std::nullopt);
  for (const std::string& path : {folder.path(), folder.path() + "/nowhere"}) {
    try {
      find_checkpoint(path);
      ADD_FAILURE() << path;
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), path + ": is no checkpoint, and has none (step-000001, ...)");
    }
  }
}

}  // namespace
}  // namespace fsdp
