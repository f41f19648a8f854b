#include <fcntl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>
#include <why/tracer.h>

#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>

namespace fsdp {
namespace {

constexpr int kNoTrace = 126;  // exit status of the child if ptrace may not trace it

[[noreturn]] void become(const SharedPage& page, const std::vector<std::string>& command) {
  personality(ADDR_NO_RANDOMIZE);
  if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(kNoTrace);
  setenv("FSDP_WATCH", std::to_string(page.descriptor()).c_str(), 1);
  const int nowhere = open("/dev/null", O_RDWR);
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    dup2(nowhere, file);
  std::vector<char*> words;
  for (const std::string& word : command)
    words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execv(words[0], words.data());
  _exit(127);
}

#ifdef __x86_64__
// Sets a debug register of an x86 processor: registers 0 to 3 hold addresses, and register 7 says
// what to watch there (Intel SDM, 17.2.4).
void set_register(pid_t process, int number, uint64_t value) {
  const size_t at = offsetof(user, u_debugreg) + static_cast<size_t>(number) * sizeof(uint64_t);
  if (ptrace(PTRACE_POKEUSER, process, at, value) != 0)
    throw CannotWatch(
        "why: this machine has no hardware watchpoints (ptrace refuses to set a "
        "debug register); run it on another one, or use ./fsdp replay");
}

void set_watchpoints(pid_t process, const WatchPage& page) {
  constexpr uint64_t kWrite = 1;
  uint64_t control = 0;
  if (page.address != 0) {
    const uint64_t length = page.width == 8 ? 2 : page.width - 1;
    set_register(process, 0, page.address);
    control |= 1U | kWrite << 16U | length << 18U;
  }
  if (page.throw_address != 0) {
    set_register(process, 1, page.throw_address);
    // Watchpoint 1 is one for execution: it stops the process before the instruction at
    // throw_address runs.
    control |= 1U << 2U;
  }
  set_register(process, 7, control);
}
#else
void set_watchpoints(pid_t, const WatchPage&) {
  throw CannotWatch("why: watchpoints are written for x86-64 only; use ./fsdp replay with gdb");
}
#endif

// Breakpoints at lines of the program: the instruction int3 replaces the first byte of the first
// instruction of each line.
class Breakpoints {
 public:
  Breakpoints(pid_t process, WatchPage& page) : process_(process), page_(page) {}

  void set(const std::vector<uint64_t>& lines) {
    for (const uint64_t line : lines) {
      const uint64_t address = page_.program_start + line;
      if (originals_.contains(address)) continue;
      const long word = ptrace(PTRACE_PEEKTEXT, process_, address, nullptr);
      originals_[address] = static_cast<uint8_t>(word);
      put(address, kInt3);
    }
  }

  // Called when the process has stopped with SIGTRAP. If a breakpoint stopped it, adds an action to
  // the page, runs the instruction that int3 has replaced, and returns the signal with which the
  // process must continue (0: none). Otherwise returns SIGTRAP.
  int pass() {
#ifdef __x86_64__
    user_regs_struct registers{};
    ptrace(PTRACE_GETREGS, process_, nullptr, &registers);
    siginfo_t info{};
    ptrace(PTRACE_GETSIGINFO, process_, nullptr, &info);
    const uint64_t address = registers.rip - 1;
    if (info.si_code == TRAP_HWBKPT || !originals_.contains(address)) return SIGTRAP;
    add_action(address);
    registers.rip = address;
    ptrace(PTRACE_SETREGS, process_, nullptr, &registers);
    put(address, originals_[address]);
    ptrace(PTRACE_SINGLESTEP, process_, nullptr, nullptr);
    int status = 0;
    if (waitpid(process_, &status, 0) != process_ || !WIFSTOPPED(status)) return 0;
    ptrace(PTRACE_GETSIGINFO, process_, nullptr, &info);
    put(address, kInt3);
    const bool stepped = WSTOPSIG(status) == SIGTRAP && info.si_code != TRAP_HWBKPT;
    return stepped ? 0 : WSTOPSIG(status);
#else
    return SIGTRAP;
#endif
  }

  const std::map<uint64_t, uint64_t>& reached() const {
    return reached_;
  }

 private:
  static constexpr uint8_t kInt3 = 0xcc;

  void put(uint64_t address, uint8_t byte) {
    const long word = ptrace(PTRACE_PEEKTEXT, process_, address, nullptr);
    ptrace(PTRACE_POKETEXT, process_, address, (word & ~0xffL) | byte);
  }
  void add_action(uint64_t address) {
    const uint64_t number = ++page_.actions;
    WatchPage::Action& action = page_.action[number % WatchPage::kActions];
    action = {};
    action.kind = WatchPage::Action::Kind::line;
    action.number = number;
    action.time = page_.time;
    action.depth = 1;
    // A frame is a return address, so SourceLines subtracts 1 from each frame. Therefore this
    // function adds 1 to the address of the line.
    action.frames[0] = address - page_.program_start + 1;
    reached_[address - page_.program_start] = number;
  }

  pid_t process_;
  WatchPage& page_;
  std::map<uint64_t, uint8_t> originals_;
  std::map<uint64_t, uint64_t> reached_;
};

}  // namespace

SharedPage::SharedPage() : descriptor_(memfd_create("fsdp-why", 0)) {
  void* memory = MAP_FAILED;
  if (descriptor_ >= 0 && ftruncate(descriptor_, sizeof(WatchPage)) == 0)
    memory = mmap(nullptr, sizeof(WatchPage), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("why: no memory to share with the rank");
  page_ = static_cast<WatchPage*>(memory);
  page_->mark = WatchPage::kMark;
  page_->element = -1;
}

SharedPage::~SharedPage() {
  munmap(page_, sizeof(WatchPage));
  close(descriptor_);
}

std::map<uint64_t, uint64_t> run_watched(const SharedPage& page,
                                         const std::vector<std::string>& command,
                                         const std::vector<uint64_t>& lines) {
  page->arm = page->observed = false;
  page->actions = page->time = page->observed_address = page->observed_width = 0;
  const pid_t process = fork();
  if (process == 0) become(page, command);
  bool started = false;
  Breakpoints breakpoints(process, *page);
  for (int status = 0, signal = 0;;) {
    if (process < 0 || waitpid(process, &status, 0) != process)
      throw std::runtime_error("why: the rank cannot be run");
    if (WIFEXITED(status) && WEXITSTATUS(status) == kNoTrace && !started)
      throw CannotWatch(
          "why: ptrace is not permitted here (in a container, allow SYS_PTRACE); "
          "use the test's text and ./fsdp hint instead");
    if (!WIFSTOPPED(status)) return breakpoints.reached();
    signal = WSTOPSIG(status);
    if (!started) {
      started = true;
      ptrace(PTRACE_SETOPTIONS, process, nullptr, PTRACE_O_EXITKILL);
      signal = 0;  // exec() stops a traced process with SIGTRAP
    } else if (signal == SIGTRAP && page->arm) {
      page->arm = false;
      set_watchpoints(process, *page);
      breakpoints.set(lines);
      signal = 0;
    } else if (signal == SIGTRAP) {
      signal = breakpoints.pass();
    }
    ptrace(PTRACE_CONT, process, nullptr, signal);
  }
}

}  // namespace fsdp
