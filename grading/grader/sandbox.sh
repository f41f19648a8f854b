#!/usr/bin/env bash
# sandbox.sh PROGRAM [ARGUMENT...]: runs what is graded, or its compiler, where it can do least.
#
# FSDP_SANDBOX says how: `namespaces` (no network, its own processes, and a file system that holds the
# system's folders, what FSDP_SEEN names, and scratch folders), `user` (another user with limits) or
# `limits` (limits alone). FSDP_SANDBOX_USER: the user's number, if root runs this. FSDP_LIMITS: options
# of prlimit. FSDP_SEEN: files and folders to read besides, a path a line; FSDP_HIDDEN: a folder in one
# of them that is not to be read. FSDP_FOLDER: where PROGRAM starts, otherwise /tmp. FSDP_WRITES: the one
# folder that it may change; what it writes elsewhere is scratch, or refused. FSDP_CONFINE: the program
# that takes system calls away (programs/confine.cpp). FSDP_GROUP: the folder of the control group that
# limits the memory of all its processes together (memory_group.py).
set -eu

limited() {
  # The change of the user forgets which signal the end of the parent sends.
  local as=(--no-new-privs --pdeathsig KILL)
  if [[ $(id -u) == 0 ]]; then
    # In a user namespace root has all capabilities there: with them it would take the mounts away.
    as+=(--bounding-set=-all --inh-caps=-all --ambient-caps=-all)
    as+=(--securebits=+noroot,+noroot_locked)
    if [[ ${FSDP_SANDBOX_USER-} ]]; then
      as+=(--reuid "$FSDP_SANDBOX_USER" --regid "$FSDP_SANDBOX_USER" --clear-groups)
    fi
  fi
  cd "${FSDP_FOLDER-/tmp}"
  # shellcheck disable=SC2086
  exec prlimit $FSDP_LIMITS setpriv "${as[@]}" \
    env -i PATH=/usr/bin:/bin HOME=/ LC_ALL=C.UTF-8 TMPDIR="${FSDP_WRITES-/tmp}" \
    ${FSDP_TEST_SEED+FSDP_TEST_SEED="$FSDP_TEST_SEED"} \
    ${OMP_NUM_THREADS+OMP_NUM_THREADS="$OMP_NUM_THREADS"} ${FSDP_CONFINE:+"$FSDP_CONFINE"} "$@"
}

# show PATH: the file or folder, and what is mounted in it, at its own place in the new root.
show() {
  if [[ -L $1 ]]; then
    cp -P "$1" "$root$1"
  elif [[ -d $1 ]]; then
    mkdir -p "$root$1"
    mount --rbind "$1" "$root$1"
  elif [[ -e $1 ]]; then
    mkdir -p "$root${1%/*}"
    : >> "$root$1"
    mount --bind "$1" "$root$1"
  fi
}

# In namespaces of its own: a new root with nothing but what is to be seen, all of it read-only.
close_off() {
  root=/sys # always there, and of no use to what runs here
  mount -t tmpfs -o size=1m,mode=755 root "$root"
  local path
  for path in /usr /bin /sbin /lib /lib32 /lib64 /libx32 /etc /opt; do show "$path"; done
  while read -r path; do show "$path"; done <<< "${FSDP_SEEN-}"
  if [[ -d ${FSDP_HIDDEN-} ]]; then mount -t tmpfs -o size=4k hidden "$root$FSDP_HIDDEN"; fi
  mkdir -p "$root"/{proc,dev/shm,tmp,old} "$root${FSDP_FOLDER-/tmp}"
  for path in null zero urandom; do show "/dev/$path"; done
  if [[ ${FSDP_WRITES-} ]]; then show "$FSDP_WRITES"; fi
  cd "$root"
  pivot_root . old
  mount -t proc proc /proc
  umount -l /old
  while read -r path; do
    printf -v path %b "$path" # a space is \040 there
    if [[ $path != "${FSDP_WRITES-}" ]]; then mount -o remount,bind,ro "$path" 2> /dev/null || true; fi
  done <<< "$(awk '{ print $5 }' /proc/self/mountinfo)"
  for path in /tmp /dev/shm; do
    mount -t tmpfs -o size=64m,nr_inodes=4096,mode=1777 scratch "$path"
  done
}

if [[ ! ${FSDP_INSIDE-} ]]; then
  if [[ ${FSDP_GROUP-} ]]; then echo $$ > "$FSDP_GROUP/cgroup.procs"; fi
  # If the machine has no memory left, the kernel ends this first, and not the grader.
  { echo 1000 > /proc/self/oom_score_adj; } 2> /dev/null || true
fi

case ${FSDP_SANDBOX-limits} in
  namespaces)
    if [[ ${FSDP_INSIDE-} ]]; then
      close_off
      limited "$@"
    fi
    as_root=()
    if [[ $(id -u) != 0 ]]; then as_root=(--user --map-root-user); fi
    FSDP_INSIDE=yes exec unshare "${as_root[@]}" --mount --net --ipc --pid --fork --kill-child \
      "$BASH" "$0" "$@"
    ;;
  *)
    limited "$@"
    ;;
esac
