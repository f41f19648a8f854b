#pragma once

#include <comm/default_timeout.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace fsdp {

// The name of the launcher in messages if RANK and WORLD_SIZE are set, but not by torchrun.
inline const std::string kPlainLauncher = "the environment (RANK and WORLD_SIZE)";

// The values in the environment of a process that a launcher has started as a rank.
struct LaunchedRank {
  int rank{};
  int world_size{1};
  std::string host;             // MASTER_ADDR of the store through which the ranks find one another
  uint16_t port{};              // MASTER_PORT of this store
  bool launcher_hosts_store{};  // whether the launcher hosts the store; false: rank 0 does
  // Prefix of the keys of this run's ranks in the store. No other run uses it in this store.
  std::string group;
  std::chrono::milliseconds timeout{kDefaultTimeout};  // time limit of each wait for a rank
  // If a wait for another rank takes longer than announce_after, the user gets a message.
  std::chrono::milliseconds announce_after{5'000};
  std::string launcher{"torchrun"};  // "torchrun", "Open MPI", "PMI", "SLURM" or kPlainLauncher
  int local_world_size{};            // ranks on this host; 0 if the launcher does not say
  int spares{};                      // ranks that the launcher has started and the run does not use
};

// Reads the environment of torchrun, mpirun (Open MPI; MPICH and others with PMI), srun, or the
// plain RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
// - Only under mpirun and srun: MASTER_ADDR may be missing if the launcher says that all ranks are
//   on one host, and MASTER_PORT is 29500 by default.
// - Returns nothing if no launcher has set its variables, or if mpirun or srun has started only one
//   process.
// - Throws std::invalid_argument, which names the variable, if one is missing or invalid, or if two
//   launchers contradict each other.
std::optional<LaunchedRank> launched_rank();

// Removes the variables that say which rank this process is, so that a program that this process
// executes does not take itself for a rank. Call it in a child process before exec().
void forget_launcher();

}  // namespace fsdp
