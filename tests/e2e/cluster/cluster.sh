#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# cluster.sh COMMAND...
#   api up|down|...     an API server alone, without nodes, in seconds: `cluster.sh api --help`
#   build [GROUP...]     build the programs into $BIN (skips what is there): `build.sh --help`
#   up [N]               bring up N nodes (default 3) and wait until all are Ready
#   down                 take everything down and clean up
#   status               what runs, and its memory
#   kubectl|helm ...     against the cluster, as administrator
#   load IMAGE.tar...    import image archives on every node, and on nodes started later
#   net I COMMAND...     run a command in the network of node I (1 is also the control plane's)
#   in I COMMAND...      run a command inside node I (its mounts and processes too)
#   crash|start I        machine crash of node I, and its return
#   stop|cont I NAME     stop kubelet, containerd or kube-proxy of node I and hold it down; let it come back
#   cut|heal I           network partition of node I
#   cp stop|start NAME   a control plane program: etcd kube-apiserver kube-controller-manager kube-scheduler coredns
#   fake N               run kwok and add N fake nodes (fake-1...; tainted and labelled type=kwok; pods there run in name only)
#   log I|cp NAME        path of a log file
set -eu
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE"/env.sh
K=$STATE/pki/admin.kubeconfig
KNOBS="vm.overcommit_memory kernel.panic kernel.panic_on_oops fs.inotify.max_user_instances"
MADE="/var/lib/kubelet /var/lib/containerd /var/lib/cni /var/log/pods /var/log/containers /etc/cni/net.d /etc/cni /etc/containerd"
kubectl() { in_ns kt1 "$BIN/kubectl" --kubeconfig "$K" "$@"; }
nodes() { local d; for d in "$STATE"/node[0-9]*/; do [ ! -d "$d" ] || { d=${d%/}; echo "${d##*/node}"; }; done | sort -n; }
alive() { "$HERE"/node.sh pid "$1" > /dev/null 2>&1; }

need() {
  local p
  [ "$(id -u)" = 0 ] || fail 1 "root is needed"
  for p in containerd runc ctr iptables ip nsenter unshare conntrack jq openssl curl; do command -v $p > /dev/null || fail 1 "missing: $p"; done
  [ -x /usr/lib/cni/bridge ] || fail 1 "missing: /usr/lib/cni/bridge"
  for p in pause etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl coredns; do
    [ -x "$BIN/$p" ] || fail 1 "missing: $BIN/$p (cluster.sh build)"; done
  [ ! -e "$STATE/up" ] || fail 1 "there is a cluster already: cluster.sh down"
  ! compgen -G "/run/netns/kt[0-9]*" > /dev/null || fail 1 "another cluster's networks are there"
}
up() {
  local n=${1:-3} i t pids=
  mkdir -p "$STATE/images" "$STATE/pv"
  for t in $KNOBS; do echo "$t=$(sysctl -n $t)"; done > "$STATE/knobs"
  for t in $MADE; do [ -e "$t" ] || echo "$t"; done > "$STATE/made"
  [ -e /run/netns ] || echo netns > "$STATE/made-netns"
  touch "$STATE/up"
  sysctl -qw fs.inotify.max_user_instances=1024
  ln -sfn "$STATE/pv" /tmp/hostpath_pv        # the folder's name is fixed in kube-controller-manager
  if [ ! -e "$STATE/images/pause.tar" ]; then
    t=$(mktemp -d); cp "$BIN/pause" "$t/pause"
    "$HERE"/../../../docker/archive.sh localhost/pause:1 "$STATE/images/pause.tar" "$t" USER=65535:65535 /pause; rm -r "$t"
  fi
  "$HERE"/net.sh up "$n"
  "$HERE"/pki.sh "$STATE/pki" $IP:6443 $(seq -f node%.0f 1 "$n")
  "$HERE"/cp.sh up
  for i in $(seq 1 "$n"); do "$HERE"/node.sh start $i & pids="$pids $!"; done
  for t in $pids; do wait $t; done
  kubectl apply -f - > /dev/null <<E
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: { name: standard, annotations: { storageclass.kubernetes.io/is-default-class: "true" } }
provisioner: kubernetes.io/host-path
E
  for t in $(seq 150); do [ "$(kubectl get nodes -o name | wc -l)" = "$n" ] && break; look_again 0.2; done
  kubectl wait --for=condition=Ready node --all --timeout=60s > /dev/null
  for t in $(seq 150); do [ -z "$(kubectl get sa default -o name 2>/dev/null)" ] || return 0; look_again 0.2; done
  echo "no service account appears" >&2; return 1
}
down() {
  local i t pids= rc=0
  [ -e "$STATE/up" ] || return 0
  for i in $(nodes); do "$HERE"/node.sh kill $i & pids="$pids $!"; done
  for t in $pids; do wait $t || rc=1; done
  "$HERE"/cp.sh down || rc=1
  "$HERE"/net.sh down
  drop_cgroups || { echo "cgroups are left: /sys/fs/cgroup/*/kt" >&2; rc=1; }
  [ ! -L /tmp/hostpath_pv ] || rm /tmp/hostpath_pv
  if [ -e "$STATE/made-netns" ] && [ -z "$(ls -A /run/netns 2>/dev/null)" ]; then umount /run/netns 2>/dev/null || true; rmdir /run/netns 2>/dev/null || true; fi
  [ ! -e "$STATE/made" ] || for t in $(cat "$STATE/made"); do [ ! -d $t ] || rmdir $t 2> /dev/null || echo "left, since not empty: $t" >&2; done
  [ ! -e "$STATE/knobs" ] || while read -r t; do sysctl -qw "$t"; done < "$STATE/knobs"
  rm -rf "$STATE"/node[0-9]* "$STATE"/{cp,pki,pv,up,knobs,made,made-netns} || rc=1
  return $rc
}
pss() { # PID... : proportional memory of these processes, MiB
  local p; for p in "$@"; do awk '/^Pss:/ {print $2}' /proc/$p/smaps_rollup 2>/dev/null; done | awk '{s += $1} END {printf "%d", s / 1024}'
}
status() {
  local i n p ns
  [ -e "$STATE/up" ] || { echo down; return; }
  for n in etcd kube-apiserver kube-controller-manager kube-scheduler coredns; do
    if running "$STATE/cp/$n.pid" "$BIN/$n"; then p=$(cat "$STATE/cp/$n.pid"); printf '%-24s pid %-7s %5s MiB\n' $n $p "$(pss $p)"; else printf '%-24s not running\n' $n; fi
  done
  for i in $(nodes); do
    if alive $i; then
      ns=$(readlink /proc/"$("$HERE"/node.sh pid $i)"/ns/pid); p=
      for n in /proc/[0-9]*; do [ "$(readlink $n/ns/pid 2>/dev/null)" = "$ns" ] && p="$p ${n#/proc/}"; done
      printf '%-24s pid %-7s %5s MiB without the containers\n' node$i "$("$HERE"/node.sh pid $i)" "$(pss $p)"
    else printf '%-24s crashed\n' node$i; fi
  done
  running "$STATE/cp/kube-apiserver.pid" "$BIN/kube-apiserver" && kubectl get nodes -o wide -l 'type!=kwok' --request-timeout=5s
}
load() {
  local f i
  for f in "$@"; do
    mkdir -p "$STATE/images"; cp "$f" "$STATE/images/.new"; mv "$STATE/images/.new" "$STATE/images/$(basename "$f")"
    for i in $(nodes); do ! alive $i || "$HERE"/node.sh in $i ctr -n k8s.io images import - < "$f" > /dev/null; done
  done
}
fake() { # capacity in FAKE_CPU, FAKE_MEM, FAKE_GPU
  local i n=$1 r
  running "$STATE/cp/kwok.pid" "$BIN/kwok" || "$HERE"/cp.sh start kwok
  r="cpu: ${FAKE_CPU:-32}, memory: ${FAKE_MEM:-256Gi}, pods: 110, nvidia.com/gpu: ${FAKE_GPU:-8}"
  for i in $(seq 1 "$n"); do cat <<E
---
apiVersion: v1
kind: Node
metadata:
  name: fake-$i
  annotations: { kwok.x-k8s.io/node: fake, node.alpha.kubernetes.io/ttl: "0" }
  labels: { type: kwok, kubernetes.io/hostname: fake-$i, kubernetes.io/arch: amd64, kubernetes.io/os: linux }
spec: { taints: [{ key: kwok.x-k8s.io/node, value: fake, effect: NoSchedule }] }
status: { allocatable: { $r }, capacity: { $r } }
E
  done | kubectl apply --server-side -f - > /dev/null
}
c=${1:-}; [ $# -eq 0 ] || shift
case $c in   # how many words each needs
load|fake|net|in|crash|start|cut|heal) needs=1 ;;
stop|cont|log) needs=2 ;;
*) needs=0 ;;
esac
[ $# -ge $needs ] || { usage "$0" >&2; exit 2; }
case $c in
api)     exec "$HERE"/api.sh "$@" ;;
build)   exec "$HERE"/build.sh "$@" ;;
up)      need; "$HERE"/cluster.sh _up "$@" || fail 1 "up failed: logs are in $STATE, cluster.sh down cleans up" ;;
_up)     up "$@" ;;
down)    down ;;
status)  status ;;
kubectl) exec nsenter --net=/run/netns/kt1 "$BIN/kubectl" --kubeconfig "$K" "$@" ;;
helm)    exec nsenter --net=/run/netns/kt1 "$BIN/helm" --kubeconfig "$K" "$@" ;;
load)    load "$@" ;;
fake)    fake "$1" ;;
net)     i=$1; shift; exec nsenter --net=/run/netns/kt"$i" "$@" ;;
in)      exec "$HERE"/node.sh in "$@" ;;
crash)   exec "$HERE"/node.sh kill "$1" ;;
start)   exec "$HERE"/node.sh start "$1" ;;
stop|cont) exec "$HERE"/node.sh $c "$@" ;;
cut|heal)  exec "$HERE"/net.sh $c "$1" ;;
cp)      exec "$HERE"/cp.sh "$@" ;;
log)     if [ "$1" = cp ]; then echo "$STATE/cp/$2.log"; else echo "$STATE/node$1/$2.log"; fi ;;
-h|--help|help) usage "$0" ;;
*) usage "$0" >&2; exit 2 ;;
esac
