#pragma once

#include <comm/default_timeout.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace fsdp {

// Who has set RANK and WORLD_SIZE, if not torchrun.
inline const std::string kPlainLauncher = "the environment (RANK and WORLD_SIZE)";

// What a process knows of itself if a launcher has started it as one rank of several.
struct LaunchedRank {
  int rank{};
  int world_size{1};
  std::string host;  // MASTER_ADDR: of the store through which the ranks find one another
  uint16_t port{};   // MASTER_PORT: likewise
  bool launcher_hosts_store{};  // whether the launcher hosts the store; else the process of rank 0
                                // does
  std::string group;  // names these ranks, and no others that use the store now or used it before
  std::chrono::milliseconds timeout{kDefaultTimeout};  // of each wait for another rank
  std::chrono::milliseconds announce_after{5'000};     // after which a wait is announced
  std::string launcher{"torchrun"};  // or "Open MPI", "PMI", "SLURM", kPlainLauncher
  int local_world_size{};            // ranks on this host; 0 if the launcher does not say
  bool has_spares{};                 // the launcher has started more ranks than the run takes
};

// Reads the environment of torchrun, mpirun (Open MPI; MPICH and others with PMI), srun, or the
// plain RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. MASTER_ADDR may be missing where the
// launcher says that all ranks are on one host, MASTER_PORT (29500) where it is not torchrun.
// Returns nothing if no launcher has set its variables, or if mpirun or srun has started one
// process alone. Throws std::invalid_argument, which names the variable, if one is missing or makes
// no sense, or if two launchers contradict each other.
std::optional<LaunchedRank> launched_rank();

}  // namespace fsdp
