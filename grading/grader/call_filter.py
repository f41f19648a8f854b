"""Blocks system calls of graded code (seccomp, through libseccomp): calls that change other
processes, the system or the sandbox, and old kernel interfaces that no computation needs. Calls for
sockets are allowed, because gloo's ranks use sockets; in mode `namespaces` the sandbox has no
network.

    call_filter.py PROGRAM [ARGUMENT...]    runs the program, which can't make the blocked calls;
                                            for sandboxes without bubblewrap
"""

import ctypes
import errno
import os
import sys

REFUSED = """
    ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd mount umount2 pivot_root chroot
    open_tree move_mount fsopen fsmount mount_setattr unshare setns setsid bpf perf_event_open
    userfaultfd keyctl add_key request_key io_uring_setup io_uring_enter io_uring_register
    kexec_load init_module finit_module delete_module reboot swapon swapoff acct quotactl syslog
    personality sethostname setdomainname settimeofday clock_settime adjtimex clock_adjtime mknod
    mknodat name_to_handle_at open_by_handle_at fanotify_init memfd_secret
""".split()
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
NEW_USER = 0x10000000  # CLONE_NEWUSER
MASKED_EQUAL = 7


class Compare(ctypes.Structure):
    _fields_ = [("argument", ctypes.c_uint), ("how", ctypes.c_int), ("mask", ctypes.c_uint64),
                ("value", ctypes.c_uint64)]


def rules():
    """Returns libseccomp, as a loaded library, and the filter that it has made. Raises OSError if
    the machine lacks libseccomp."""
    lib = ctypes.CDLL("libseccomp.so.2")
    lib.seccomp_init.restype = ctypes.c_void_p
    made = ctypes.c_void_p(lib.seccomp_init(ALLOW))

    def refuse(call, error, *compared):
        number = lib.seccomp_syscall_resolve_name(call.encode())
        if number >= 0:  # negative if this machine or this libseccomp has no such call
            lib.seccomp_rule_add_array(
                made, REFUSE | error, number, len(compared), (Compare * 1)(*compared)
            )

    for call in REFUSED:
        refuse(call, errno.EPERM)
    refuse("clone", errno.EPERM, Compare(0, MASKED_EQUAL, NEW_USER, NEW_USER))
    # A seccomp filter can't read the flags of clone3, because they are in memory. The filter
    # refuses clone3 with ENOSYS, so glibc calls clone, whose flags the filter can read.
    refuse("clone3", errno.ENOSYS)
    return lib, made


def write(path):
    """Writes the seccomp filter to a file, in the format that bubblewrap reads."""
    lib, made = rules()
    with open(path, "wb") as file:
        if lib.seccomp_export_bpf(made, file.fileno()) != 0:
            raise OSError("libseccomp can't write a filter")


def main():
    lib, made = rules()
    if (status := lib.seccomp_load(made)) != 0:
        sys.exit(f"call_filter: {os.strerror(-status)}")
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
