#include <base/whole_file.h>
#include <gtest/gtest.h>
#include <reproduce/long_run.h>
#include <state/checkpoint_folder.h>

#include <common/expect_text.h>
#include <common/temporary_folder.h>

#include <fstream>

namespace fsdp {
namespace {

namespace fs = std::filesystem;

// Tests long runs with a fake of the train program, which write_program() writes. The fake makes
// steps 0 to 3, or steps 2 and 3 if it resumes, and fails after step `fails_after`. If it does not
// fail, its last line of output shows its arguments.
class LongTraining : public testing::Test {
 protected:
  void write_program(int fails_after = -1) const {
    std::ofstream(program()) << R"sh(#!/bin/bash
all="$*"
first=0
while [ $# -gt 0 ]; do
  case $1 in
    --log) log=$2 ;;
    --json) json=$2 ;;
    --resume) first=2 ;;
  esac
  shift
done
for step in 0 1 2 3; do
  [ $step -lt $first ] && continue
  echo "{\"step\":$step,\"loss\":$((10 * first + step))}" >> $log
  if [ $step = )sh" << fails_after
                             << R"sh( ]; then echo rank 1 is gone; exit 1; fi
done
echo '{"final":true,"param_sum":5}' > $json
echo $all
)sh";
    fs::permissions(program(), fs::perms::owner_all);
  }
  std::string program() const { return folder_.path() + "/train"; }
  std::string of_run() const { return folder_.path() + "/long"; }
  std::string output() const { return content_of(of_run() + "/output"); }
  LongResult run(const TrainOptions& options = {"--seed", "3"}) const {
    return run_or_go_on(program(), folder_.path(), {"long", options, 4, 3000});
  }
  std::string error(const TrainOptions& options = {"--seed", "3"}) const {
    return error_of<std::runtime_error>([&] { run(options); });
  }

  TemporaryFolder folder_;
};

TEST_F(LongTraining, a_long_run_that_ended_early_continues_from_its_checkpoint) {
  write_program(2);
  EXPECT_EQ(error(), "long: rank 1 is gone (see " + of_run() +
                         "/output; the same command continues the run)");
  fs::create_directories(step_folder(of_run() + "/checkpoints", 2));
  write_program();
  const LongResult result = run();
  EXPECT_CONTAINS(output(), "--resume " + of_run() + "/checkpoints");
  ASSERT_EQ(result.result.steps.size(), 4U);
  EXPECT_EQ(result.result.loss(1), 1);
  EXPECT_EQ(result.result.loss(2), 22) << "step 2 ran twice, so the second loss must count";
  EXPECT_FALSE(fs::exists(of_run() + "/checkpoints"))
      << "a finished run must remove its checkpoints";
}

TEST_F(LongTraining, the_results_of_a_long_run_name_the_receipt_that_it_wrote) {
  write_program();
  EXPECT_EQ(run().receipt, "");
  EXPECT_EQ(output().find("--receipt"), std::string::npos);
  fs::remove_all(of_run());
  const auto with_receipt = [&] {
    return run_or_go_on(program(), folder_.path(), {"long", {"--seed", "3"}, 4, 3000, 64});
  };
  with_receipt();
  EXPECT_CONTAINS(output(), "--receipt " + of_run() + "/receipt --receipt-sample 64");
  folder_.write("long/receipt", "hashes");
  EXPECT_EQ(with_receipt().receipt, of_run() + "/receipt");
}

TEST_F(LongTraining, a_long_run_skips_a_truncated_log_line_and_keeps_earlier_measurements) {
  write_program();
  folder_.write("long/log.jsonl", "{\"step\":0,\"lo\n");
  folder_.write("long/memory.json", R"({"seconds":7,"peak":30,"swapped":1})");
  const LongResult result = run();
  EXPECT_EQ(result.result.steps.size(), 4U);
  EXPECT_EQ(result.result.seconds, 7);
  EXPECT_EQ(result.peak, 30);
  EXPECT_EQ(result.swapped, 1);
}

TEST_F(LongTraining, a_finished_long_run_is_read_and_not_run_again) {
  EXPECT_CONTAINS(error_of<std::runtime_error>([&] {
                    run_or_go_on(program(), folder_.path(), {"long", {}, 4, int64_t{1} << 60});
                  }),
                  of_run() + ": needs 3074457345 GB on the disk, and ");
  write_program();
  run();
  fs::remove(program());
  EXPECT_EQ(run().result.loss(3), 3);
  EXPECT_EQ(error({"--seed", "4"}), of_run() +
                                        ": holds another run, train --seed 3; remove it or give "
                                        "another --folder");
}

TEST_F(LongTraining, the_recorded_options_of_a_long_run_omit_the_offload_dir_that_the_run_gets) {
  write_program();
  run({"--offload", "optimizer"});
  EXPECT_CONTAINS(output(), " --offload-dir " + folder_.path());
  EXPECT_EQ(content_of(of_run() + "/options"), "--offload optimizer");
}

}  // namespace
}  // namespace fsdp
