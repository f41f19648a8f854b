#include <comm/collective_error.h>
#include <comm/recording.h>
#include <hosts/rendezvous.h>
#include <sys/resource.h>
#include <transports/gloo_group.h>

#include <torch/version.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <stdexcept>
#include <system_error>

namespace fsdp {
namespace {

// If the gloo in libtorch had another order of virtual functions than gloo_declarations/, a call
// would run another function, and no compiler or linker would report it.
static_assert(TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 11 && TORCH_VERSION_MINOR <= 15,
              "gloo_declarations/ was tried with LibTorch 2.11 to 2.15: compare its classes with "
              "those of the gloo that this LibTorch was built with, function by function and in "
              "order, run the tests over gloo, then widen the range here");

// Throws std::runtime_error if this process may not open as many files as gloo needs, because gloo
// itself would end the process.
void require_open_files(const std::string& who, int ranks) {
  // gloo opens a connection for each rank, and 4 other files.
  constexpr int kOfItsOwn = 4;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  std::error_code unknown;
  const std::filesystem::directory_iterator files("/proc/self/fd", unknown);
  const auto open = std::distance(begin(files), end(files));
  const rlim_t needed = static_cast<rlim_t>(open + ranks + kOfItsOwn);
  if (limit.rlim_cur >= needed) return;
  throw std::runtime_error(who + ": backend gloo needs " + std::to_string(needed) +
                           " open files to connect " + std::to_string(ranks) +
                           " ranks, and this process may have " + std::to_string(limit.rlim_cur) +
                           "; raise the limit (ulimit -n)");
}

std::shared_ptr<gloo::transport::Device> device_for(const RankContext& context,
                                                    const Group& group) {
  if (context.on_one_host(group))
    return c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1");
  // PyTorch accepts a list of interfaces in GLOO_SOCKET_IFNAME. Here the first one carries all
  // calls.
  const char* given = std::getenv("GLOO_SOCKET_IFNAME");
  const std::string interface(given != nullptr ? given : "");
  if (!interface.empty())
    return c10d::ProcessGroupGloo::createDeviceForInterface(
        interface.substr(0, interface.find(',')));
  return c10d::ProcessGroupGloo::createDeviceForHostname(context.hosts->address);
}

}  // namespace

c10::intrusive_ptr<c10d::ProcessGroupGloo> connect_gloo(const RankContext& context, Ledger& ledger,
                                                        const std::string& purpose,
                                                        std::chrono::milliseconds timeout) {
  const Group group = ledger.group();
  require_open_files("rank " + std::to_string(context.rank), group.size);
  // SIGPIPE is ignored, so that a write to a broken connection returns an error and does not end
  // the process. For stdout, flush_output() still ends the process.
  signal(SIGPIPE, SIG_IGN);
  try {
    auto options = c10d::ProcessGroupGloo::Options::create(timeout);
    options->devices = {device_for(context, group)};
    options->threads = 2;
    const int rank = replays() ? 0 : ledger.rank();  // a replayed rank is alone in its gloo group
    const int size = replays() ? 1 : group.size;
    auto connected = c10::make_intrusive<c10d::ProcessGroupGloo>(
        rendezvous_of(context, group, purpose, timeout), rank, size, options);
    // Gloo connects each pair of ranks in turn. Without the barrier, a rank that has connected
    // could end and close its connections while another rank still connects; that rank would then
    // fail.
    connected->barrier()->wait();
    return connected;
  } catch (const std::exception& error) {
    throw CollectiveError("rank " + std::to_string(context.rank) +
                          ": can't connect to the other ranks" + group.text() + " over gloo" +
                          ledger.absent() + " (" + message_of(error) + ')');
  }
}

}  // namespace fsdp
