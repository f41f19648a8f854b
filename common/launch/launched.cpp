#include <base/text.h>
#include <launch/launched.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <stdexcept>
#include <system_error>

namespace fsdp {
namespace {

constexpr int kManyRanks = 100'000;
// The port of the store if MASTER_PORT is not set: 29500, torchrun's default.
constexpr uint16_t kUsualPort = 29500;

// A launcher, and the names of the environment variables in which it writes which rank a process
// is.
struct Launcher {
  std::string name;
  const char* rank;
  const char* world_size;
  // local_world_size, hosts and job are null if the launcher sets no such variable.
  const char* local_world_size;  // name of the variable with the number of ranks on this host
  const char* hosts;             // name of the variable with the number of hosts
  const char* job;               // name of the variable with a text that differs between jobs
};

// If several launchers have set their variables, the first one in the order of kLaunchers has
// started this process: srun starts the agents of mpirun, and srun or mpirun may start torchrun.
// For SLURM, the number of ranks is that of a step, because a batch script has a SLURM_PROCID too,
// but belongs to no step and is not a rank.
const std::array<Launcher, 4> kLaunchers{{
    {kPlainLauncher, "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", nullptr, "TORCHELASTIC_RUN_ID"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
     nullptr, "PMIX_NAMESPACE"},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", nullptr, "PMI_JOBID"},
    {"SLURM", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", nullptr, "SLURM_STEP_NUM_NODES",
     "SLURM_JOB_ID"},
}};

std::string variable(const char* name) {
  const char* value = name != nullptr ? std::getenv(name) : nullptr;
  return value != nullptr ? one_line(value) : "";
}

int number_in(const char* name, int least, int most, const std::string& reason = "") {
  const std::string text = variable(name);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= least && value <= most) {
    return value;
  }
  throw std::invalid_argument(std::string(name) + "=" + text + " is not a number from " +
                              std::to_string(least) + " to " + std::to_string(most) + reason);
}

void require_set(const char* name, const std::string& why) {
  if (variable(name).empty())
    throw std::invalid_argument(std::string(name) + " is not set: " + why);
}

bool has_started_this(const Launcher& launcher) {
  if (&launcher == kLaunchers.data())
    return !variable(launcher.rank).empty() || !variable(launcher.world_size).empty();
  // A process that mpirun or srun has started alone does not count as a rank, because it may be a
  // shell, or start ranks itself.
  return !variable(launcher.rank).empty() && !variable(launcher.world_size).empty() &&
         variable(launcher.world_size) != "1";
}

// Throws if a user has exported RANK and WORLD_SIZE, and they contradict those of a launcher. RANK
// would be the same in every process that mpirun starts. RANK and WORLD_SIZE of torchrun are not
// compared, because they are right even if another launcher has started torchrun.
void require_no_contradiction(const Launcher& launcher) {
  if (&launcher != kLaunchers.data() || !variable(launcher.job).empty()) return;
  for (const Launcher& other : kLaunchers) {
    if (&other == &launcher || !has_started_this(other)) continue;
    for (const auto& [mine, its] :
         {std::pair{launcher.rank, other.rank}, {launcher.world_size, other.world_size}}) {
      if (variable(mine) == variable(its)) continue;
      throw std::invalid_argument(std::string(mine) + "=" + variable(mine) + " contradicts " + its +
                                  "=" + variable(its) + " of " + other.name +
                                  ": unset RANK and WORLD_SIZE, or start without " + other.name);
    }
  }
}

// Returns the address of the store, MASTER_ADDR. If it is not set, returns 127.0.0.1 if mpirun or
// srun says that all ranks are on one host. Otherwise throws std::invalid_argument, because with
// several hosts no default is right.
std::string master_address(const Launcher& launcher, const LaunchedRank& self) {
  std::string given = variable("MASTER_ADDR");
  if (!given.empty()) return given;
  const bool all_here = self.local_world_size == self.world_size;
  if (all_here && &launcher != kLaunchers.data()) return "127.0.0.1";
  require_set("MASTER_ADDR", "the " + std::to_string(self.world_size) + " ranks that " +
                                 launcher.name +
                                 " has started find one another at the address of "
                                 "the host of rank 0; give all of them MASTER_ADDR=ADDRESS");
  return "";
}

}  // namespace

std::optional<LaunchedRank> launched_rank() {
  const Launcher* launcher = nullptr;
  for (const Launcher& one : kLaunchers)
    if (launcher == nullptr && has_started_this(one)) launcher = &one;
  if (launcher == nullptr) return {};
  const bool plain = launcher == kLaunchers.data();
  for (const char* name : {launcher->rank, launcher->world_size})
    require_set(name,
                "a rank that another program has started needs RANK, WORLD_SIZE, MASTER_ADDR "
                "and MASTER_PORT");
  require_no_contradiction(*launcher);
  LaunchedRank self;
  self.launcher = plain && !variable(launcher->job).empty() ? "torchrun" : launcher->name;
  self.world_size = number_in(launcher->world_size, 1, kManyRanks);
  self.rank = number_in(
      launcher->rank, 0, self.world_size - 1,
      std::string(", for ") + launcher->world_size + "=" + variable(launcher->world_size));
  if (!variable(launcher->local_world_size).empty())
    self.local_world_size = number_in(launcher->local_world_size, 1, self.world_size);
  if (variable(launcher->hosts) == "1") self.local_world_size = self.world_size;
  self.host = master_address(*launcher, self);
  if (plain) require_set("MASTER_PORT", "the ranks find one another at MASTER_ADDR:MASTER_PORT");
  self.port = variable("MASTER_PORT").empty()
                  ? kUsualPort
                  : static_cast<uint16_t>(number_in("MASTER_PORT", 1, 65535));
  self.launcher_hosts_store = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
  self.group = variable(launcher->job) + '/' +
               variable(plain ? "TORCHELASTIC_RESTART_COUNT" : "SLURM_STEP_ID");
  return self;
}

void forget_launcher() {
  for (const Launcher& launcher : kLaunchers)
    for (const char* name : {launcher.rank, launcher.world_size})
      unsetenv(name);
}

}  // namespace fsdp
