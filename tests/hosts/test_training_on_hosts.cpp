#include <common/set_variables.h>

#include <filesystem>
#include <sstream>

#include "ranks_on_hosts.h"

namespace fsdp {
namespace {

// ./fsdp train by ranks on two hosts.
class TrainingOnHosts : public RanksOnHosts {
 protected:
  static std::vector<std::string> arguments(const std::string& more) {
    std::istringstream words(
        "--mode fsdp --model gpt2-tiny --steps 3 --batch 8 --seq 16 --data "
        "pattern --timeout 20 " +
        more);
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
  // `of_last`: options that the last rank alone has.
  void train(Network& network, const std::string& options, const std::string& of_last = "") {
    for (int rank = 0; rank < 4; ++rank) {
      pids_.push_back(network.start(rank / 2, [=, this] {
        const SetVariables set({{"RANK", std::to_string(rank)},
                                {"WORLD_SIZE", "4"},
                                {"MASTER_ADDR", Network::name(0)},
                                {"MASTER_PORT", "29400"},
                                {"LOCAL_WORLD_SIZE", "2"}});
        return run(arguments(options + ' ' + (rank == 3 ? of_last : "")));
      }));
    }
  }
  // The words from `begin` to the end of the line in what was said last.
  std::string line_with(const std::string& begin) const {
    const std::string text = said_.text();
    const size_t at = text.rfind(begin);
    return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
  }
};

TEST_F(TrainingOnHosts, ends_with_the_parameters_of_one_host_and_the_bytes_predicted) {
  Network network(2);
  pids_.push_back(network.start(0, [this] { return run(arguments("--world 4")); }));
  ASSERT_EQ(ended(), std::vector<int>{0}) << said_.text();
  const std::string alone = line_with("sha256 ");
  ASSERT_NE(alone, "");
  for (const std::string strategy : {"full", "grad_op", "hybrid"}) {
    said_.clear();
    train(network, "--strategy " + strategy);
    EXPECT_EQ(ended(), std::vector<int>(4, 0)) << said_.text();
    EXPECT_EQ(line_with("sha256 "), alone) << strategy;
    EXPECT_CONTAINS(said_.text(), "24 of 24 peaks of rank 0 are as predicted");
    EXPECT_CONTAINS(said_.text(),
                    strategy == "hybrid" ? "over shm and gloo on 2 hosts" : "over gloo on 2 hosts");
  }
}

TEST_F(TrainingOnHosts, names_a_rank_whose_options_or_folder_are_others) {
  Network network(2);
  train(network, "", "--lr 0.5");
  ended();
  EXPECT_CONTAINS(said_.text(), "rank 3 on host-b was started with other options");
  said_.clear();
  train(network, "--checkpoint-dir /dev/shm/run");  // of each host
  ended();
  EXPECT_CONTAINS(said_.text(), "rank 2 on host-b does not see --checkpoint-dir /dev/shm/run");
}

}  // namespace
}  // namespace fsdp
