#!/usr/bin/env bash
# look.sh [--names] OBJECT...: inspects the objects of a student's files, before they run, for
# functions and instructions that a solution does not need, because it only computes. Prints lines
# of three parts with tabs between them:
#   rejected  FILE  uses NAMES, ...   the task gets no points, in `./fsdp check` and from the grader
#   stopped   FILE  uses NAMES, ...   costs nothing unless it runs: a rank ends where it calls one
#                                     of these functions
#   remark    FILE  uses NAMES, ...   costs nothing; the instructor may read the code
# FILE is the path from tasks/ on, if the object's path contains tasks/. NAMES are written as in a
# source file. With --names it prints instead the linker's names of the functions of the `stopped`
# lines, and `syscall`; cmake/isolate.sh replaces these functions. Fails if an object can't be read.
set -euo pipefail
names=
if [[ ${1-} == --names ]]; then
  names=yes
  shift
fi

# Regular expressions for names of C functions that the objects use, grouped by what the functions
# do. Nothing is printed for the group `plain`. A C function in no group is a remark.
files='open(at)?(64|2)?|creat(64)?|f?d?open(64)?|freopen(64)?|__open(at)?(64)?_2|tmpfile(64)?'
files+='|mks?temp.*|tmpnam|mkdtemp'
files+='|p?read(64|v.*)?|__p?read(64)?_chk|p?write(64|v.*)?|readlink(at)?|f?l?stat(at|x|fs)?(64)?'
files+='|__[fl]?xstat(64)?|access'
files+='|(f|euid)access(at)?|unlink(at)?|remove|rename(at2?)?|(sym)?link(at)?'
files+='|mk(dir|nod|fifo)(at)?|rmdir|chdir|fchdir'
files+='|l?f?ch(mod|own)(at)?|f?truncate(64)?|(fd)?opendir|scandir.*|n?ftw(64)?|fts_.*|glob(64)?'
files+='|dup[23]?|fcntl(64)?|ioctl'
files+='|v?dprintf|__v?dprintf_chk|eventfd(_.*)?|vmsplice|putp?msg|_IO_(file_|fd|new_|do_).*'
files+='|(_*|__libc_)(write|read|open|close|send)(64|_2)?|close(_range|from)?'
files+='|sendfile(64)?|splice|tee|copy_file_range|shm_open|memfd_create|mmap(64)?|mremap|shmget'
files+='|shmat|io_.*|inotify_.*'
ends='_?[eE]xit|quick_exit|raise|pthread_kill'  # they end the rank, and the test fails
processes='_*v?fork|clone3?|_?_?clone|posix_spawnp?|f?execv?[lpe]*(at)?|system|popen|wordexp|daemon'
processes+='|on_exit|kill(pg)?|tg?kill|sigqueue|ptrace|prctl|process_vm_.*|pidfd_.*'
processes+='|set(sid|pgid|uid|gid|rlimit)'
processes+='|unshare|setns|wait(pid|id|3|4)?|v?pause|longjmp|_longjmp|siglongjmp|__longjmp_chk'
network='socket(pair)?|connect|listen|accept4?|send(to|m?msg)?|recv(from|m?msg)?|__recv.*_chk'
network+='|gethost.*|getaddrinfo|pipe2?'
libraries='dl(m?open|v?sym|_iterate_phdr)'
plain='mem.*|v?w?mem.*|w?c?str.*|wcs.*|w?mb.*|stp.*|is[a-z]+|iswc?[a-z]*|tow?(lower|upper)'
plain+='|towctype|btowc|wctob|bcmp|ato[a-z]+'
plain+='|malloc|calloc|realloc|reallocarray|free|cfree|aligned_alloc|posix_memalign|qsort(_r)?'
plain+='|bsearch|l?l?(abs|div)'
plain+='|v?(f|s|sn|as)?w?printf|v?sw?scanf|__isoc(99|23)_.*|__.*_chk|f?putc(har)?|f?puts|putw?char'
plain+='|fwrite|fflush|perror'
plain+='|std(out|err)|s?rand(om)?(_r)?|[dlmes]rand48|pthread_.*|__pthread_.*|sched_yield|u?sleep'
plain+='|nanosleep|getpid|gettid'
plain+='|abort|__assert_fail|__assert|__cxa_.*|__gxx_personality_.*|_Unwind_.*'
plain+='|__stack_chk_(fail|guard)|__tls_get_addr'
plain+='|__dynamic_cast|__dso_handle|_GLOBAL_OFFSET_TABLE_|_ITM_.*|__gmon_start__|__errno_location'
plain+='|__libc_single_threaded'
plain+='|__once_proxy|__h_errno_location|__aarch64_.*|__(a|l|u)?san_.*|__ubsan_.*|__tsan_.*'
plain+='|__emutls_.*'
plain+='|__[a-z]*([sdtxhb][fi]|[sdxth]c)[0-9]*'  # the compiler's own arithmetic, as __udivti3

# Regular expressions for C++ names that the objects use: namespaces, classes and functions. A name
# matches only as a whole word: `std` does not match `stdext`.
cpp_files='std::(basic_filebuf|basic_[io]?fstream|__basic_file|filesystem)'
cpp_files+='|__gnu_cxx::stdio_(filebuf|sync_filebuf)'
cpp_files+='|torch::(save|load|serialize|pickle_save|pickle_load|jit|autograd::profiler)'
cpp_files+='|caffe2::serialize'
cpp_files+='|at::([a-z_]+::)?from_file|at::(Refcounted)?MapAllocator|at::NewProcessWideShmHandle'
cpp_files+='|at::new_shm_fd_storage'
cpp_files+='|c10::((try_)?make_temp(file|dir)|TempFile|TempDir)'
cpp_files+='|fsdp::(write_whole_file|write_all|MomentFile|SharedRegion)'
cpp_tests='fsdp::(ChildProgram|launch|ForkedRanks|remote_ranks|TestRank|Channel|run_ranks'
cpp_tests+='|hidden_(cases|number)|results)|testing'
cpp_network='c10d|gloo|fsdp::Communicator::create'
cpp_libraries='at::DynamicLibrary'
cpp_measures='fsdp::(Communicator::take_log|live_bytes::(add|remove|reset|take_peak|enter|on_free'
cpp_measures+='|ScopedPeaks)'
cpp_measures+='|poison::enable|limit_memory'
cpp_measures+='|counting_allocator|device_blocks)|(c10|at)::(impl::)?[Ss]et[A-Za-z_]*'
cpp_measures+='|at::Context::set[A-Za-z]*|at::[a-z]+[A-Za-z]*Callbacks?'
cpp_measures+='|c10::[A-Za-z]*CPU[A-Za-z]*Allocator[A-Za-z]*|torch::Library::_(impl|def)'
cpp_measures+='|c10::RegisterOperators|c10::utils'
cpp_measures+='|c10::Dispatcher::((de)?register[A-Za-z]*|add[A-Za-z]*|getAll[A-Za-z]*'
cpp_measures+='|find(Schema|Op)[A-Za-z]*)'
cpp_measures+='|at::enableRecordFunction'
cpp_plain='std|__gnu_cxx|__cxxabiv1|at|c10|torch|caffe2|fsdp|operator (new|delete)'

mathematics() {
  nm -D --defined-only "$("${CXX:-c++}" -print-file-name=libm.so.6)" |
    awk '{ sub(/@.*/, "", $3); print $3 }'
}

# undefined OBJECT...: prints a line "OBJECT TAB NAME TAB NAME" for each name that an object uses
# and does not define. The first NAME is without the symbol's version, the second one with it.
undefined() { nm -A -u "$@" | sed -n -E 's/^(.*): +[UwvV] ([^@]+)(@.*)?$/\1\t\2\t\2\3/p'; }

# kernel_calls OBJECT...: prints a line for each object that has an instruction, such as syscall,
# that calls the kernel directly.
kernel_calls() {
  local object
  for object; do
    # grep runs without -q here: with -q it would exit at the first match, objdump would be ended by
    # a signal, and with pipefail the match would count as a failure.
    if objdump -d --no-show-raw-insn "$object" |
      grep -E '\s(syscall|sysenter|int +\$0x80|svc +.*)\s*$' >/dev/null; then
      printf '%s\tsyscall\tsyscall\tan instruction of the kernel\n' "$object"
    fi
  done
}

found=$(undefined "$@")
defined=$(nm -A -g --defined-only "$@" | awk '{ print $NF }' | sort -u)
# `lines` has one line for each name that an object uses and does not define: the line that
# undefined() prints, and then the demangled name without parameters and return type. Unless --names
# is given, the lines of kernel_calls follow, one for each object that calls the kernel directly.
lines=$(
  paste <(printf '%s\n' "$found") <(cut -f 2 <<<"$found" | c++filt -p)
  if [[ ! $names ]]; then kernel_calls "$@"; fi
)
LC_ALL=C awk -F '\t' -v OFS='\t' -v files="$files" -v processes="$processes" -v ends="$ends" \
  -v network="$network" \
  -v libraries="$libraries" -v plain="$plain" -v cpp_files="$cpp_files" -v cpp_tests="$cpp_tests" \
  -v cpp_network="$cpp_network" -v cpp_libraries="$cpp_libraries" -v cpp_measures="$cpp_measures" \
  -v cpp_plain="$cpp_plain" -v mathematics="$(mathematics)" -v own="$defined" -v names="$names" '
  BEGIN {
    count = split(mathematics, all, "\n"); for (i = 1; i <= count; ++i) is_plain[all[i]] = 1
    count = split(own, all, "\n"); for (i = 1; i <= count; ++i) is_own[all[i]] = 1
    of_files = "a solution uses no files, and no memory but that of LibTorch and C++"
    of_network = "a solution reaches others by the communicator alone"
    of_libraries = "a solution looks for no function by its name"
    of_table = "^(vtable|VTT|typeinfo|typeinfo name|guard variable|(non-)?virtual thunk|" \
               "TLS [a-z]+ function|reference temporary #[0-9]+) (for|to) "
  }
  function is(name, list) { return name ~ "^(" list ")$" }
  function begins(list) { return match(name, "^(" list ")([^A-Za-z0-9_]|$)") }
  function tell_family(kind, what) {
    name = substr(name, 1, RLENGTH)
    sub(/[^A-Za-z0-9_]$/, "", name)
    tell(kind, what)
  }
  # Returns the name that source code has for the symbol in `name`: "open" for open64.
  function as_written(name) {
    sub(/[<(].*/, "", name)
    if (name ~ /^std::(__basic_file|basic_filebuf)$/)
      return has_stream[$1] ? has_stream[$1] : "std::filebuf"
    sub(/^std::basic_/, "std::", name)
    sub(/^at::_ops::/, "torch::", name)
    if (name == "torch::serialize") return "torch::save or torch::load"
    if (name ~ /::/) return name
    sub(/^__isoc(99|23)_/, "", name)
    if (sub(/^__/, "", name)) sub(/(_chk|(64)?_2)$/, "", name)
    if (sub(/^[fl]?xstat/, "&", name)) sub(/xstat/, "stat", name)
    if (name ~ "^(open|openat|creat|fopen|freopen|fdopen|tmpfile|mkstemp|mkostemp|pread|pwrite|" \
               "[fl]?stat|f?truncate|sendfile|ftw|nftw|glob|scandir|mmap)64$")
      sub(/64$/, "", name)
    return name
  }
  function tell(kind, what,   file, line) {
    if (names) {
      if ((kind == "stopped" || $2 == "syscall") && $2 !~ /^_Z(T[VTISC]|GV)/) print $3
      return
    }
    file = $1
    sub(/^.*\/tasks\//, "tasks/", file)
    sub(/\.o$/, "", file)
    if ($4 != "an instruction of the kernel") name = as_written(name)
    line = kind "\t" file "\t" what
    if (index(", " found[line] ", ", ", " name ", ")) return
    if (++names_of[line] <= 4)
      found[line] = found[line] (found[line] ? ", " : "") substr(name, 1, 100)
  }
  NF != 4 { next }
  FNR == NR {  # first reading: note the streams of a file, whose constructors use std::filebuf
    if (match($4, /std::basic_[io]?fstream/))
      has_stream[$1] = "std::" substr($4, RSTART + 11, RLENGTH - 11)
    next
  }
  {
    name = $4
    sub(of_table, "", name)
    if ($4 == "an instruction of the kernel")
      tell("rejected", "a solution computes, and leaves the kernel alone")
    else if ($2 !~ /^_Z/) {
      if (is(name, files)) tell("stopped", of_files)
      else if (is(name, ends)) tell("remark", "it ends the rank, and with it the test")
      else if (is(name, processes))
        tell("stopped", "a solution starts, ends and watches no process")
      else if (is(name, network)) tell("stopped", of_network)
      else if (is(name, libraries)) tell("stopped", of_libraries)
      else if (!is(name, plain) && !(name in is_plain) && !($2 in is_own))
        tell("remark", "solutions rarely need it")
    }
    else if ($2 in is_own || $2 ~ /^_ZT[IS](PK?)?(D[defhinsu]|[a-z])$/) next
    else if (begins(cpp_files)) tell_family("stopped", of_files)
    else if (begins(cpp_tests))
      tell_family("stopped", "this is for the tests and for what starts ranks")
    else if (begins(cpp_network)) tell_family("stopped", of_network)
    else if (begins(cpp_libraries)) tell_family("stopped", of_libraries)
    else if (begins(cpp_measures))
      tell_family("remark", "it changes what is measured, or what LibTorch does for all")
    else if (!begins(cpp_plain))
      tell("remark", "it is nothing of std, of LibTorch or of the course")
  }
  END {
    if (names) exit
    for (line in found) {
      split(line, part, "\t")
      more = names_of[line] > 4 ? " and more" : ""
      advice = ""
      if (part[1] == "rejected") advice = ". Remove it"
      if (part[1] == "stopped")
        advice = ". A rank ends where it calls this; to print, use std::cout, std::cerr or printf()"
      print part[1] "\t" part[2] "\tuses " found[line] more ": " part[3] advice
    }
  }' <(printf '%s\n' "$lines") <(printf '%s\n' "$lines") | sort
