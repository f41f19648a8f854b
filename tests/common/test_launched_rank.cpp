#include <gtest/gtest.h>
#include <launch/launched.h>

#include <stdexcept>
#include <vector>

#include "expect_text.h"
#include "torchrun.h"

namespace fsdp {
namespace {

// Returns launched_rank() in an environment where, of torchrun's variables, only those in
// `variables` are set.
std::optional<LaunchedRank> started_by(const Variables& variables) {
  const SetVariables set(variables);
  return launched_rank();
}

// Returns launched_rank() in an environment with the variables that torchrun sets for rank 1 of 2,
// replaced or removed as `changes` says.
LaunchedRank changed(const Variables& changes) {
  Variables variables = torchrun_variables(1, 2, 29500);
  for (const auto& [name, value] : changes)
    variables[name] = value;
  return started_by(variables).value();
}

std::string complaint(const Variables& changes) {
  return error_of<std::invalid_argument>([&] { changed(changes); });
}

void expect_rank(const LaunchedRank& self, int rank, int world_size, bool hosted) {
  EXPECT_EQ(self.rank, rank);
  EXPECT_EQ(self.world_size, world_size);
  EXPECT_EQ(self.host, "127.0.0.1");
  EXPECT_EQ(self.port, 29500);
  EXPECT_EQ(self.launcher_hosts_store, hosted);
}

TEST(LaunchedRank, a_rank_reads_the_variables_of_torchrun) {
  expect_rank(changed({}), 1, 2, true);
  EXPECT_FALSE(started_by({}));
}

TEST(LaunchedRank, an_error_names_the_variable_that_is_missing_or_has_a_bad_value) {
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
    EXPECT_CONTAINS(complaint({{name, ""}}), std::string(name) + " is not set: ");
  EXPECT_EQ(complaint({{"RANK", "2"}}), "RANK=2 is not a number from 0 to 1, for WORLD_SIZE=2");
  EXPECT_CONTAINS(complaint({{"RANK", "-1"}}), "RANK=-1 is not a number");
  EXPECT_CONTAINS(complaint({{"RANK", "1x"}}), "RANK=1x is not a number");
  EXPECT_EQ(complaint({{"RANK", "1\n2"}}).find('\n'), std::string::npos);
  EXPECT_CONTAINS(complaint({{"WORLD_SIZE", "0"}}), "WORLD_SIZE=0 is not a number from 1");
  EXPECT_CONTAINS(complaint({{"WORLD_SIZE", "99999999999"}}), "WORLD_SIZE=99999999999 is no");
  EXPECT_CONTAINS(complaint({{"MASTER_PORT", "65536"}}), "MASTER_PORT=65536 is not a number");
  EXPECT_EQ(complaint({{"LOCAL_WORLD_SIZE", "3"}}),
            "LOCAL_WORLD_SIZE=3 is not a number from 1 to 2");
}

TEST(LaunchedRank, a_rank_reads_the_variables_of_mpirun_and_srun) {
  const std::vector<Variables> launchers{
      {{"OMPI_COMM_WORLD_RANK", "2"},
       {"OMPI_COMM_WORLD_SIZE", "4"},
       {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
       {"PMIX_NAMESPACE", "job"}},
      {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "4"}},
      {{"SLURM_PROCID", "2"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_NUM_NODES", "1"}}};
  for (const Variables& variables : launchers)
    expect_rank(started_by(variables).value(), 2, 4, false);
}

TEST(LaunchedRank, one_process_of_mpirun_or_srun_and_a_slurm_batch_script_are_not_launched_ranks) {
  EXPECT_FALSE(started_by({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}));
  EXPECT_FALSE(started_by({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}));
  EXPECT_FALSE(started_by({{"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "7"}}));
}

TEST(LaunchedRank, launched_rank_throws_if_ranks_of_several_hosts_have_no_store_address) {
  const std::vector<Variables> launchers{
      {{"OMPI_COMM_WORLD_RANK", "2"},
       {"OMPI_COMM_WORLD_SIZE", "4"},
       {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}},
      {{"SLURM_PROCID", "2"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_NUM_NODES", "2"}}};
  for (const Variables& variables : launchers)
    EXPECT_CONTAINS(error_of<std::invalid_argument>([&] { started_by(variables); }),
                    "MASTER_ADDR is not set: the 4 ranks that");
}

// If a user has exported the variable RANK, all processes that mpirun starts have the same RANK. In
// all of them but one it differs from the number that mpirun gave the rank.
TEST(LaunchedRank, an_error_names_the_contradiction_between_variables_of_two_launchers) {
  Variables variables{{"RANK", "0"},
                      {"WORLD_SIZE", "4"},
                      {"MASTER_ADDR", "127.0.0.1"},
                      {"MASTER_PORT", "29500"},
                      {"OMPI_COMM_WORLD_RANK", "2"},
                      {"OMPI_COMM_WORLD_SIZE", "4"}};
  EXPECT_CONTAINS(error_of<std::invalid_argument>([&] { started_by(variables); }),
                  "RANK=0 contradicts OMPI_COMM_WORLD_RANK=2 of Open MPI: unset RANK");
  variables["RANK"] = "2";
  EXPECT_EQ(started_by(variables)->rank, 2);
  variables["RANK"] = "0";
  // If torchrun set this variable, mpirun has started a torchrun on each host. Then RANK comes from
  // torchrun, and may differ from the number that mpirun gave.
  variables["TORCHELASTIC_RUN_ID"] = "inside";
  EXPECT_EQ(started_by(variables)->rank, 0);
}

TEST(LaunchedRank, when_torchrun_restarts_the_ranks_the_name_of_their_group_changes) {
  const std::string group = changed({}).group;
  EXPECT_NE(group, changed({{"TORCHELASTIC_RESTART_COUNT", "1"}}).group);
  EXPECT_NE(group, changed({{"TORCHELASTIC_RUN_ID", "another"}}).group);
}

}  // namespace
}  // namespace fsdp
