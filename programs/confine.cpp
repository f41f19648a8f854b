// confine PROGRAM [ARGUMENT...]: runs a program that can call of the kernel only what a computing
// process needs. Graded code has no way back: the filter lasts until the process ends, and what it
// starts has it, too (seccomp(2)).
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <vector>

namespace {

#if defined(__x86_64__)
constexpr unsigned kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr unsigned kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "confine knows the system calls of x86_64 and aarch64"
#endif

// What changes other processes, the system or the sandbox itself, and old doors into the kernel
// that no computation needs. Sockets stay: gloo's ranks talk over them, and the sandbox has no
// network.
constexpr unsigned kRefused[] = {
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_kcmp,
    SYS_pidfd_getfd,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_open_tree,
    SYS_move_mount,
    SYS_fsopen,
    SYS_fsmount,
    SYS_mount_setattr,
    SYS_unshare,
    SYS_setns,
    SYS_setsid,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_kexec_load,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_acct,
    SYS_quotactl,
    SYS_syslog,
    SYS_personality,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_adjtimex,
    SYS_clock_adjtime,
    SYS_mknodat,
    SYS_name_to_handle_at,
    SYS_open_by_handle_at,
    SYS_fanotify_init,
    SYS_memfd_secret,
};

// The numbers of x32 system calls on x86_64 begin here: the same calls by other numbers.
constexpr unsigned kX32 = 0x40000000;

std::vector<sock_filter> filter() {
  const auto load = [](size_t at) {
    return sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, unsigned(at));
  };
  const auto result = [](unsigned what) { return sock_filter BPF_STMT(BPF_RET | BPF_K, what); };
  const unsigned refuse = SECCOMP_RET_ERRNO | EPERM;
  std::vector<sock_filter> program = {
      load(offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
      result(SECCOMP_RET_KILL_PROCESS),
      load(offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kX32, 0, 1),
      result(refuse),
  };
  for (const unsigned call : kRefused) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
    program.push_back(result(refuse));
  }
  program.push_back(result(SECCOMP_RET_ALLOW));
  return program;
}

int failed(const char* what) {
  std::fprintf(stderr, "confine: %s: %s\n", what, std::strerror(errno));
  return 126;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) {
    std::fputs("usage: confine PROGRAM [ARGUMENT...]\n", stderr);
    return 2;
  }
  std::vector<sock_filter> rules = filter();
  const sock_fprog program{static_cast<unsigned short>(rules.size()), rules.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return failed("no_new_privs");
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return failed("seccomp");
  execvp(arguments[1], arguments + 1);
  return failed(arguments[1]);
}
