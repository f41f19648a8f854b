#include <state/checkpoint.h>
#include <state/checkpoint_folder.h>
#include <task5_sharded_optimizer/each_element.h>
#include <testing/multi_rank.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>

#include <common/expect_text.h>
#include <common/temporary_folder.h>
#include "saved_state.h"

namespace fsdp {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

const Json kRun{{"model", "none"}};

void save(TestRank& rank, const std::string& folder, CheckpointFormat format) {
  save_checkpoint(folder, format, 3, kRun, cut_state(rank.rank(), rank.world_size()),
                  *rank.communicator());
}

const std::vector<std::pair<std::string, CheckpointFormat>> kFormats{
    {"sharded", CheckpointFormat::sharded}, {"full", CheckpointFormat::full}};

MULTI_RANK_SUITE(ModelCheckpoint);

// Loads a checkpoint twice, once as the part of this rank and once as copies of everything. Expects
// that both have the saved values.
void expect_loaded(TestRank& rank, const std::string& folder, const Locate& locate) {
  const int ranks = rank.world_size();
  const ModelState cut = cut_state(rank.rank(), ranks, true), copied = whole_state(true);
  load_checkpoint(folder, cut, locate, *rank.communicator());
  load_checkpoint(folder, copied, locate, *rank.communicator());
  EXPECT_TRUE(equal(cut, cut_state(rank.rank(), ranks)) && equal(copied, whole_state()));
}

MULTI_RANK_TEST(ModelCheckpoint, a_checkpoint_loads_on_any_number_of_ranks) {
  const TemporaryFolder folder;
  run_ranks(world_size(), [&](TestRank& rank) {
    for (const auto& [name, format] : kFormats)
      save(rank, folder.path() + '/' + name, format);
  });
  for (int ranks = 1; ranks <= 4; ++ranks) {
    run_ranks(ranks, [&](TestRank& rank) {
      for (const auto& [name, format] : kFormats) {
        const Checkpoint found = find_checkpoint(folder.path() + '/' + name);
        EXPECT_EQ(found.step, 3);
        EXPECT_EQ(found.run, kRun);
        expect_loaded(rank, found.folder, each_element);
      }
    });
  }
}

// If a rank needs only whole saved ranges, load_checkpoint() does not call locate(). So a student
// whose locate() is not written yet can load what the same number of ranks or one process has
// saved.
MULTI_RANK_TEST(ModelCheckpoint, loading_on_as_many_ranks_as_have_saved_does_not_call_locate) {
  const TemporaryFolder folder;
  run_ranks(world_size(), [&](TestRank& rank) {
    save(rank, folder.path(), CheckpointFormat::sharded);
    expect_loaded(rank, step_folder(folder.path(), 3), nullptr);
  });
}

MULTI_RANK_TEST(ModelCheckpoint, if_locate_throws_on_one_rank_loading_changes_no_value_anywhere) {
  const TemporaryFolder folder;
  run_ranks(world_size(),
            [&](TestRank& rank) { save(rank, folder.path(), CheckpointFormat::sharded); });
  // With one rank more, the last rank needs only a part of a saved range.
  const int more = world_size() + 1;
  run_ranks(more, [&](TestRank& rank) {
    const Locate locate = [&](const ElementRange& range, const std::vector<ElementRange>& saved) {
      if (rank.rank() == more - 1) throw std::invalid_argument(range.parameter + " is nowhere");
      return each_element(range, saved);
    };
    const ModelState state = cut_state(rank.rank(), more, true);
    const auto load = [&] {
      load_checkpoint(step_folder(folder.path(), 3), state, locate, *rank.communicator());
    };
    EXPECT_EQ(error_of<std::runtime_error>(load), "a.weight is nowhere");
    EXPECT_TRUE(equal(state, cut_state(rank.rank(), more, true)));
  });
}

// The last rank reads another folder than the other ranks: one that does not exist, one that lacks
// a file, or one with a damaged file. When the ranks divide the files to check their hashes, the
// last rank reads the last file.
MULTI_RANK_TEST(ModelCheckpoint,
                a_checkpoint_file_that_one_rank_cannot_read_changes_no_value_on_any_rank) {
  const TemporaryFolder folder;
  run_ranks(world_size(),
            [&](TestRank& rank) { save(rank, folder.path(), CheckpointFormat::sharded); });
  const std::string good = step_folder(folder.path(), 3);
  char last[64];
  std::snprintf(last, sizeof last, "/rank-%04d-of-%04d.safetensors", world_size() - 1,
                world_size());
  const auto copy = [&](const std::string& name, const std::function<void(const std::string&)>& f) {
    fs::copy(good, folder.path() + name);
    f(folder.path() + name);
    return folder.path() + name;
  };
  const std::vector<std::pair<std::string, std::string>> cases{
      {folder.path() + "/nowhere", "/nowhere/"},
      {copy("/without-a-file", [&](const std::string& path) { fs::remove(path + last); }),
       std::string("/without-a-file") + last},
      {copy("/damaged",
            [&](const std::string& path) {
              std::fstream file(path + last, std::ios::binary | std::ios::in | std::ios::out);
              file.seekp(-1, std::ios::end);
              file.put('\x7f');
            }),
       std::string("/damaged") + last + ": is damaged"}};
  for (const auto& [bad, says] : cases) {
    const RankRun run = run_ranks(world_size(), [&, bad = bad](TestRank& rank) {
      const ModelState state = cut_state(rank.rank(), rank.world_size(), true);
      const std::string& seen = rank.rank() == rank.world_size() - 1 ? bad : good;
      rank.observe("error", error_of<std::runtime_error>([&] {
                     load_checkpoint(seen, state, each_element, *rank.communicator());
                   }));
      EXPECT_TRUE(equal(state, cut_state(rank.rank(), rank.world_size(), true)));
    });
    expect_same_on_all_ranks(run, "error");
    EXPECT_CONTAINS(run.at(0, "error").get<std::string>(), says);
  }
}

// The last rank fails after the other ranks have begun to read values.
MULTI_RANK_TEST(ModelCheckpoint,
                loading_a_checkpoint_throws_on_all_ranks_if_one_rank_fails_to_read) {
  const TemporaryFolder folder;
  run_ranks(world_size(),
            [&](TestRank& rank) { save(rank, folder.path(), CheckpointFormat::sharded); });
  // With one rank more, the last rank needs only a part of a saved range.
  const int more = world_size() + 1;
  const RankRun run = run_ranks(more, [&](TestRank& rank) {
    int calls = 0, checks = 0;
    const ModelState state = cut_state(rank.rank(), more, true);
    const auto load = [&](const Locate& locate) {
      load_checkpoint(step_folder(folder.path(), 3), state, locate, *rank.communicator());
    };
    load([&](const ElementRange& range, const std::vector<ElementRange>& saved) {
      ++calls;
      return each_element(range, saved);
    });
    EXPECT_TRUE(equal(state, cut_state(rank.rank(), more)));
    // load_checkpoint() calls locate() as often to check the saved ranges as to read them. So the
    // first half of the calls are checks, and the second half are reads.
    const Locate fails = [&](const ElementRange& range, const std::vector<ElementRange>& saved) {
      if (rank.rank() == more - 1 && ++checks > calls / 2)
        throw std::runtime_error(range.parameter + ": Input/output error");
      return each_element(range, saved);
    };
    rank.observe("error", error_of<std::runtime_error>([&] { load(fails); }));
  });
  expect_on_all_ranks(run, "error", "a.weight: Input/output error");
}

// An unfinished save of an earlier run has left a file in the folder.
MULTI_RANK_TEST(ModelCheckpoint, if_all_ranks_hold_copies_only_one_checkpoint_file_is_written) {
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

MULTI_RANK_TEST(ModelCheckpoint,
                save_checkpoint_throws_on_all_ranks_and_leaves_no_files_if_a_rank_cannot_write) {
  const TemporaryFolder folder;
  run_ranks(world_size(), [&](TestRank& rank) {
    for (const auto& [name, format] : kFormats) {
      ModelState state = cut_state(rank.rank(), rank.world_size());
      // One range has only half of its bytes, so a rank fails while it writes. In the full format
      // only rank 0 writes.
      const int failing = name == "full" ? 0 : rank.world_size() - 1;
      if (rank.rank() == failing) state.ranges[0].value = state.ranges[0].value.to(at::kHalf);
      const auto save = [&, format = format] {
        save_checkpoint(folder.path(), format, 3, kRun, state, *rank.communicator());
      };
      EXPECT_CONTAINS(error_of<std::runtime_error>(save), "bytes are missing");
      EXPECT_FALSE(latest_step(folder.path()).has_value()) << name;
      EXPECT_TRUE(rank.rank() != 0 || fs::is_empty(folder.path()))
          << "the files of a failed save must be removed";
    }
  });
}

MULTI_RANK_TEST(ModelCheckpoint, save_checkpoint_does_not_overwrite_a_checkpoint_of_its_step) {
  const TemporaryFolder folder;
  run_ranks(world_size(), [&](TestRank& rank) {
    save(rank, folder.path(), CheckpointFormat::sharded);
    EXPECT_EQ(
        error_of<std::runtime_error>([&] { save(rank, folder.path(), CheckpointFormat::sharded); }),
        step_folder(folder.path(), 3) + ": is there already");
  });
}

}  // namespace
}  // namespace fsdp
