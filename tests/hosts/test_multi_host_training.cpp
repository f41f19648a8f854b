#include <common/set_variables.h>
#include <common/temporary_folder.h>

#include <filesystem>
#include <sstream>

#include "ranks_on_hosts.h"

namespace fsdp {
namespace {

const std::string kShort = "--steps 3 --batch 8 --timeout 20 ";

// Runs reference_train, the program behind ./fsdp train with the reference solutions, on several
// emulated hosts.
class MultiHostTraining : public MultiHostRun {
 protected:
  static std::vector<std::string> arguments(const std::string& more) {
    std::istringstream words("--mode fsdp --model gpt2-tiny --seq 16 --data pattern " + more);
    std::vector<std::string> list{std::filesystem::canonical("/proc/self/exe").parent_path() /
                                  "reference_train"};
    for (std::string word; words >> word;)
      list.push_back(word);
    return list;
  }
  int run(const std::vector<std::string>& command) {
    std::vector<char*> argv;
    for (const std::string& word : command)
      argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    dup2(said_.file(), STDOUT_FILENO);
    dup2(said_.file(), STDERR_FILENO);
    execv(argv[0], argv.data());
    return 127;
  }
  // Starts the ranks, two on each host. `of_last`: options that only the last rank gets.
  void train(Network& network, const std::string& options, const std::string& of_last = "",
             int ranks = 4) {
    for (int rank = 0; rank < ranks; ++rank) {
      pids_.push_back(network.start(rank / 2, [=, this] {
        const SetVariables set({{"RANK", std::to_string(rank)},
                                {"WORLD_SIZE", std::to_string(ranks)},
                                {"MASTER_ADDR", Network::name(0)},
                                {"MASTER_PORT", "29400"},
                                {"LOCAL_WORLD_SIZE", "2"}});
        return run(arguments(options + ' ' + (rank == ranks - 1 ? of_last : "")));
      }));
    }
  }
  // Trains on one host without a fault. Returns the output line with the hash of the parameters.
  std::string parameters_of(Network& network, const std::string& options) {
    said_.clear();
    pids_.push_back(network.start(0, [=, this] { return run(arguments(options)); }));
    EXPECT_EQ(ended(), std::vector<int>{0}) << said_.text();
    const std::string line = line_with("sha256 ");
    EXPECT_NE(line, "");
    said_.clear();
    return line;
  }
  void wait_until_said(const std::string& words) const {
    while (said_.text().find(words) == std::string::npos)
      usleep(1000);  // the alarm that SetUp() has set ends a test that waits here for ever
  }
  // Returns the text from the last `begin` in the output to the end of its line; empty if `begin`
  // is not there.
  std::string line_with(const std::string& begin) const {
    const std::string text = said_.text();
    const size_t at = text.rfind(begin);
    return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
  }
};

TEST_F(MultiHostTraining,
       training_on_several_hosts_ends_with_the_parameters_of_one_host_and_the_predicted_bytes) {
  Network network(2);
  const std::string alone = parameters_of(network, kShort + "--world 4");
  for (const std::string strategy : {"full", "grad_op", "hybrid"}) {
    said_.clear();
    train(network, kShort + "--strategy " + strategy);
    EXPECT_EQ(ended(), std::vector<int>(4, 0)) << said_.text();
    EXPECT_EQ(line_with("sha256 "), alone) << strategy;
    EXPECT_CONTAINS(said_.text(), "24 of 24 peaks of rank 0 are as predicted");
    EXPECT_CONTAINS(said_.text(),
                    strategy == "hybrid" ? "over shm and gloo on 2 hosts" : "over gloo on 2 hosts");
  }
}

TEST_F(MultiHostTraining, after_a_lost_host_training_ends_with_the_bits_of_an_undisturbed_run) {
  Network network(2);
  const std::string options = "--steps 6 --batch 8 --timeout 20 --clip 0.5 ";
  const std::string undisturbed = parameters_of(network, options + "--world 4");
  train(network, options + "--strategy hybrid --on-lost-host continue --fault rank=3,kill=60");
  const auto statuses = ended();
  EXPECT_EQ(std::vector(statuses.begin(), statuses.begin() + 2), std::vector<int>(2, 0));
  EXPECT_EQ(line_with("sha256 "), undisturbed) << said_.text();
  EXPECT_EQ(count("rank 3 on host-b was killed by signal 9", said_.text()), 1) << said_.text();
  EXPECT_EQ(count("fsdp train: ", said_.text()), 1) << said_.text();
  EXPECT_EQ(count(" with 2 ranks on 1 host\n", said_.text()), 1) << said_.text();
  EXPECT_CONTAINS(said_.text(), "24 of 24 peaks of rank 0 are as predicted");
}

// Each step is saved, so the loss can interrupt a save. Then the ranks that continue save again.
TEST_F(MultiHostTraining, survivors_save_checkpoints_in_the_background_and_leave_none_unfinished) {
  Network network(2);
  const TemporaryFolder folder;
  const std::string options = "--steps 6 --batch 8 --timeout 20 ";
  const std::string undisturbed = parameters_of(network, options + "--world 4");
  train(network, options + "--strategy hybrid --on-lost-host continue --fault rank=3,kill=60 " +
                     "--save-async --checkpoint-dir " + folder.path());
  const auto statuses = ended();
  EXPECT_EQ(std::vector(statuses.begin(), statuses.begin() + 2), std::vector<int>(2, 0));
  EXPECT_EQ(line_with("sha256 "), undisturbed) << said_.text();
  EXPECT_EQ(count(" with 2 ranks on 1 host\n", said_.text()), 1) << said_.text();
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/step-000006")) << said_.text();
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    EXPECT_NE(entry.path().extension(), ".part") << entry.path();
}

// First host-c is lost. Then host-b is cut off: in one run while the other ranks divide the
// microbatches of host-c among themselves, in the other run after they have done so.
TEST_F(MultiHostTraining, one_of_three_hosts_continues_after_one_is_lost_and_one_is_cut_off) {
  for (const std::string moment : {"host-c is lost", " with 4 ranks on 2 hosts\n"}) {
    alarm(120);
    Network network(3);
    const std::string options = "--steps 60 --batch 12 --microbatches 12 ";
    const std::string undisturbed = parameters_of(network, options + "--world 2");
    train(network,
          options + "--reduce-gradients last --strategy hybrid --on-lost-host continue --timeout 5",
          "", 6);
    wait_until_said("step 3/60");
    network.end(2);
    wait_until_said(moment);
    network.cut(1);
    const auto statuses = ended();
    EXPECT_EQ(std::vector(statuses.begin(), statuses.begin() + 2), std::vector<int>(2, 0));
    EXPECT_EQ(line_with("sha256 "), undisturbed) << said_.text();
    EXPECT_EQ(count("rank 4 does not answer (its host is down", said_.text()), 1) << said_.text();
    EXPECT_EQ(count("rank 2 does not answer (its host is down", said_.text()), 1) << said_.text();
    EXPECT_CONTAINS(said_.text(), " with 2 ranks on 1 host\n");
  }
}

TEST_F(MultiHostTraining, an_error_names_a_rank_with_other_options_or_another_checkpoint_folder) {
  Network network(2);
  train(network, kShort, "--lr 0.5");
  ended();
  EXPECT_CONTAINS(said_.text(), "rank 3 on host-b was started with other options");
  EXPECT_CONTAINS(said_.text(), "than rank 0: --lr: ");
  EXPECT_CONTAINS(said_.text(), " on rank 0, 0.5 here; all ranks need the same");
  said_.clear();
  train(network, kShort + "--checkpoint-dir /dev/shm/run");  // each host has its own /dev/shm
  ended();
  EXPECT_CONTAINS(said_.text(), "rank 2 on host-b does not see --checkpoint-dir /dev/shm/run");
}

}  // namespace
}  // namespace fsdp
