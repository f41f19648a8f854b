#!/usr/bin/env bash
# sandbox.sh PROGRAM [ARGUMENT...]: runs a program of graded code where it can do least.
#
# FSDP_SANDBOX says how: `namespaces` (no network, its own processes, nothing to write to but a small
# scratch folder, and neither the repository's secrets nor /proc of others to see), `user` (another
# user with limits) or `limits` (limits alone). FSDP_SANDBOX_USER: the user's number, if root runs
# this. FSDP_LIMITS: options of prlimit. The program is opened first, so that it can lie where the
# graded code sees nothing.
set -eu
exec 9<"$1"
shift

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
  # shellcheck disable=SC2086
  exec prlimit $FSDP_LIMITS setpriv "${as[@]}" \
    env -i PATH=/usr/bin:/bin HOME=/ ${FSDP_TEST_SEED+FSDP_TEST_SEED="$FSDP_TEST_SEED"} \
    ${OMP_NUM_THREADS+OMP_NUM_THREADS="$OMP_NUM_THREADS"} /proc/self/fd/9 "$@"
}

# In namespaces of its own: first everything read-only, then small scratch folders, then what is not
# to be read.
close_off() {
  local folder
  while read -r folder; do
    mount -o remount,bind,ro "$folder" 2>/dev/null || true
  done < <(awk '{ print $5 }' /proc/self/mountinfo)
  for folder in /tmp /dev/shm; do
    mount -t tmpfs -o size=64m,nr_inodes=4096,mode=1777 scratch "$folder"
  done
  for folder in $FSDP_HIDDEN; do
    mount -t tmpfs -o size=4k,ro hidden "$folder"
  done
}

case ${FSDP_SANDBOX-limits} in
  namespaces)
    if [[ ${FSDP_INSIDE-} ]]; then
      close_off
      cd /tmp
      limited "$@"
    fi
    as_root=()
    if [[ $(id -u) != 0 ]]; then as_root=(--user --map-root-user); fi
    FSDP_INSIDE=yes exec unshare "${as_root[@]}" --mount --net --ipc --pid --fork --kill-child \
      --mount-proc "$BASH" "$0" /proc/self/fd/9 "$@"
    ;;
  *)
    cd /
    limited "$@"
    ;;
esac
