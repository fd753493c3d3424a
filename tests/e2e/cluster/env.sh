#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Sourced by the other scripts: where things are, and a few small functions.
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/pushpull-cluster
export STATE=${STATE:-$CACHE/state}     # everything of a running cluster; a real disk, since overlayfs cannot sit on overlayfs
export BIN=${BIN:-$CACHE/bin}           # the built programs
export TOOLS=${TOOLS:-$CACHE/tools}     # the Go tools modules
export API_STATE=${API_STATE:-$CACHE/api}  # everything of a running API server without nodes
IP=172.30.0.1                           # node1 and the control plane
CGROUPS="cpu cpuacct cpuset memory devices freezer blkio pids systemd"

# A command that ends a script and says nothing of itself is named, with its line.
set -E
trap 'printf "%s, line %s: failed: %s\n" "${BASH_SOURCE[0]##*/}" "$LINENO" "$BASH_COMMAND" >&2' ERR

# fail CODE TEXT... : one line on standard error, with the script's name
fail() { local code=$1; shift; printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit "$code"; }
# usage FILE : the comment at the top of a script, below its licence, is its help
usage() { sed -n '/^#!/d; /SPDX/d; /^#$/d; /^[^#]/q; s/^# \{0,1\}//p' "$1"; }
# in_ns NAME COMMAND... : not `ip netns exec`, which remounts /sys and so hides the cgroup mounts
in_ns() { local n=$1; shift; nsenter --net=/run/netns/"$n" "$@"; }
# running PIDFILE PATTERN : the recorded process lives and is still the one that was started (its command line says so)
running() { local p; p=$(cat "$1" 2>/dev/null) && [ -n "$p" ] && { tr '\0' ' ' < /proc/"$p"/cmdline; } 2>/dev/null | grep -qF -- "$2"; }
# gone PID : it has ended (as a zombie too: this machine's PID 1 may take seconds to reap)
gone() { ! grep -q '^State:[^Z]*$' /proc/"$1"/status 2>/dev/null; }
# ended PIDFILE : what was started has ended. It has not where it is still the script that starts it, as on a busy machine
ended() { local p; p=$(cat "$1" 2>/dev/null) && [ -n "$p" ] || return 0; gone "$p"; }
# look_again SECONDS : the pause between two looks of a wait, which has a deadline
look_again() { sleep "$1"; }
# end_process PIDFILE PATTERN : TERM, and KILL after 8 s; nothing where another process has the number by now
end_process() {
  local p
  running "$1" "$2" || { rm -f "$1"; return 0; }
  p=$(cat "$1"); kill "$p" 2>/dev/null || true
  for _ in $(seq 160); do ! gone "$p" || break; look_again 0.05; done
  gone "$p" || kill -9 "$p" 2>/dev/null || true
  rm -f "$1"
}
# drop_cgroups NAME : removes the empty groups below kt/NAME (or all of kt)
drop_cgroups() {
  local c try
  for try in 1 2 3 4 5 6 7 8 9 10; do
    for c in /sys/fs/cgroup/*/kt/${1:-}; do [ -d "$c" ] && find "$c" -depth -type d -exec rmdir {} + 2>/dev/null; done
    compgen -G "/sys/fs/cgroup/*/kt/${1:-}" > /dev/null || return 0
    look_again 0.2
  done
  return 1
}
