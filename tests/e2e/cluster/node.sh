#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# node.sh start|kill I | in I COMMAND... | stop|cont I kubelet|containerd|kube-proxy | pid I
# kill is a machine crash: everything in the node dies at once. stop ends one daemon and holds it down until cont.
set -eu
. "$(dirname "$0")"/env.sh
[ $# -ge 2 ] || { usage "$0" >&2; exit 2; }
I=$2 N=node$2 D=$STATE/node$2
alive() { running "$D/pid" "node-init.sh $N "; }
init_pid() { alive && pgrep -P "$(cat "$D/pid")" | head -1; }
case $1 in
start)
  ! alive || fail 1 "$N is running"
  mkdir -p "$D"; rm -f "$D/ready"; drop_cgroups $N || true
  setsid nsenter --net=/run/netns/kt$I unshare --mount --pid --uts --fork --kill-child --mount-proc --propagation private \
    "$(cd "$(dirname "$0")" && pwd)"/node-init.sh $N $I "$STATE" "$BIN" > "$D/init.log" 2>&1 < /dev/null &
  P=$!; echo $P > "$D/pid"
  end=$((SECONDS + 120))
  until [ -e "$D/ready" ]; do
    look_again 0.1
    kill -0 $P 2>/dev/null && [ $SECONDS -lt $end ] || { echo "$N does not start" >&2; tail -n 20 "$D"/{init,containerd}.log >&2; exit 1; }
  done ;;
kill)
  alive || exit 0
  P=$(init_pid) || P=
  kill -9 "$(cat "$D/pid")"                    # --kill-child: PID 1 of the node dies, and with it everything in the node
  for _ in $(seq 200); do [ -n "$P" ] && ! gone "$P" || break; look_again 0.05; done
  drop_cgroups $N || echo "$N: some cgroups are left" >&2 ;;
in)   P=$(init_pid) || fail 1 "$N is not running"
      shift 2; exec nsenter -t "$P" -m -u -n -p "$@" ;;
stop) touch "$D/hold-$3"; "$0" in $I kill "$(cat "$D/$3.pid")" ;;
cont) rm -f "$D/hold-$3" ;;
pid)  init_pid ;;
esac
