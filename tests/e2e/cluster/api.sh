#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# api.sh COMMAND...   the light mode: etcd and kube-apiserver on loopback, no nodes, no namespaces, no root
#   up                  start both on free ports; prints the administrator's kubeconfig when the API server is ready
#   down                stop both and remove their state; also after a failed `up`
#   status              what runs, where, and its memory
#   kubectl|helm ...    as administrator
#   stop|start          stop the API server and start it again, on the same port with the same data; etcd goes on
#   add NAME [ARG...]   start one more program with more arguments: kube-controller-manager, kube-scheduler, or kwok, which plays
#                       the kubelet of every node that has the annotation kwok.x-k8s.io/node=fake
#   remove NAME         stop it again
#   path NAME           path of: kubeconfig, audit (every request, a JSON line each), log (of the API server), etcd-log
#
# State is in $API_STATE (default: below the cache); another folder is another API server, as many as there is memory for
# (400 MiB each). Without `add` there is no controller: namespaces stay Terminating, nothing is collected by owner references,
# and no service account is made, so pods are admitted without one.
set -eu
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE"/env.sh
P=$API_STATE/pki
K=$P/admin.kubeconfig
readonly READY_WITHIN=120   # seconds; 4 on an idle machine
readonly ADDED="kwok kube-scheduler kube-controller-manager"

run() { # NAME ARGS... : in a session of its own, so that no terminal's signal reaches it
  local n=$1; shift
  setsid "$BIN/$n" "$@" >> "$API_STATE/$n.log" 2>&1 < /dev/null &
  echo $! > "$API_STATE/$n.pid"
}
alive() { running "$API_STATE/$1.pid" "$BIN/$1"; }
free_ports() { # how many : numbers that nobody listens on just now
  /usr/bin/python3 - "$1" <<'PY'
import socket, sys
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
print(*(s.getsockname()[1] for s in held))
PY
}
answers() { curl -sf -m 2 --cacert "$P/ca.crt" --cert "$P/admin.crt" --key "$P/admin.key" "https://127.0.0.1:$API_PORT/readyz" > /dev/null; }
wait_ready() {
  local end=$((SECONDS + READY_WITHIN))
  until answers; do
    for n in etcd kube-apiserver; do
      ! ended "$API_STATE/$n.pid" || { tail -20 "$API_STATE/$n.log" >&2; echo "api.sh: $n has ended, its last lines are above" >&2; return 1; }
    done
    [ $SECONDS -lt $end ] || { tail -20 "$API_STATE/kube-apiserver.log" >&2; echo "api.sh: the API server is not ready after $READY_WITHIN s" >&2; return 1; }
    look_again 0.1
  done
}
start_etcd() {
  run etcd --name e --data-dir "$API_STATE/etcd" --unsafe-no-fsync --log-level=warn \
    --listen-client-urls "http://127.0.0.1:$ETCD_PORT" --advertise-client-urls "http://127.0.0.1:$ETCD_PORT" \
    --listen-peer-urls "http://127.0.0.1:$PEER_PORT" --initial-advertise-peer-urls "http://127.0.0.1:$PEER_PORT" \
    --initial-cluster "e=http://127.0.0.1:$PEER_PORT"
}
start_apiserver() {
  run kube-apiserver --etcd-servers="http://127.0.0.1:$ETCD_PORT" --bind-address=127.0.0.1 --secure-port="$API_PORT" \
    --advertise-address=127.0.0.1 --endpoint-reconciler-type=none --tls-cert-file="$P/apiserver.crt" \
    --tls-private-key-file="$P/apiserver.key" --client-ca-file="$P/ca.crt" --service-cluster-ip-range=10.96.0.0/16 \
    --authorization-mode=RBAC --disable-admission-plugins=ServiceAccount --allow-privileged=true \
    --service-account-issuer=https://kubernetes.default.svc.cluster.local --service-account-key-file="$P/sa.pub" \
    --service-account-signing-key-file="$P/sa.key" --audit-policy-file="$API_STATE/audit.yaml" \
    --audit-log-path="$API_STATE/audit.log" --audit-log-mode=blocking --v=1
}
add() {
  local n=$1; shift
  [ -x "$BIN/$n" ] || fail 3 "needs $BIN/$n: cluster.sh build kube kwok"
  ! alive "$n" || fail 1 "$n runs already"
  case $n in
  kube-controller-manager) run $n --kubeconfig="$K" --leader-elect=false --secure-port=0 --root-ca-file="$P/ca.crt" \
    --service-account-private-key-file="$P/sa.key" --kube-api-qps=300 --kube-api-burst=600 --v=1 "$@" ;;
  kube-scheduler) run $n --kubeconfig="$K" --leader-elect=false --secure-port=0 --kube-api-qps=300 --kube-api-burst=600 --v=1 "$@" ;;
  kwok) run $n --kubeconfig="$K" --manage-all-nodes=false --manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake \
    --node-ip=127.0.0.1 --node-lease-duration-seconds=40 --config="$BIN/kwok-stages.yaml" --v=WARN "$@" ;;
  *) fail 2 "kube-controller-manager, kube-scheduler or kwok, not '$n'" ;;
  esac
}
need() {
  local p
  for p in openssl curl setsid; do command -v $p > /dev/null || fail 3 "needs $p"; done
  for p in etcd kube-apiserver kubectl; do [ -x "$BIN/$p" ] || fail 3 "needs $BIN/$p: cluster.sh build api"; done
}
load_ports() { [ -e "$API_STATE/ports" ] || fail 1 "no API server in $API_STATE: api.sh up"; . "$API_STATE/ports"; }
up() {
  local try begin=$SECONDS
  need
  [ ! -e "$API_STATE/ports" ] || fail 1 "there is an API server in $API_STATE already: api.sh down"
  mkdir -p "$API_STATE"
  cat > "$API_STATE/audit.yaml" <<'Y'
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- { level: None, users: ["system:apiserver"] }
- { level: Metadata }
Y
  for try in 1 2 3; do   # a port may be taken between the look and the start
    read -r API_PORT ETCD_PORT PEER_PORT < <(free_ports 3)
    printf 'API_PORT=%s ETCD_PORT=%s PEER_PORT=%s\n' $API_PORT $ETCD_PORT $PEER_PORT > "$API_STATE/ports"
    "$HERE"/pki.sh "$P" 127.0.0.1:$API_PORT
    start_etcd
    start_apiserver
    if wait_ready; then
      printf 'api.sh: ready after %d s at https://127.0.0.1:%s\n' $((SECONDS - begin)) $API_PORT >&2
      echo "$K"; return 0
    fi
    grep -q 'address already in use' "$API_STATE"/*.log || break
    down; mkdir -p "$API_STATE"
  done
  fail 1 "the API server does not start: logs are in $API_STATE; api.sh down cleans up"
}
down() {
  [ -e "$API_STATE" ] || return 0
  # what is removed must be this script's own
  [ -e "$API_STATE/ports" ] || [ -e "$API_STATE/audit.yaml" ] || [ -z "$(ls -A "$API_STATE")" ] || fail 1 "$API_STATE is not a folder of api.sh"
  local n
  for n in $ADDED kube-apiserver etcd; do end_process "$API_STATE/$n.pid" "$BIN/$n"; done
  rm -rf "$API_STATE"
}
status() {
  local n p rc=0
  [ -e "$API_STATE/ports" ] || { echo "down ($API_STATE)"; return 1; }
  load_ports
  for n in etcd kube-apiserver $ADDED; do
    if [ ! -e "$API_STATE/$n.pid" ] && [[ " $ADDED " == *" $n "* ]]; then continue
    elif alive $n; then
      p=$(cat "$API_STATE/$n.pid")
      printf '%-16s pid %-7s %5d MiB\n' $n "$p" $(($(awk '/^Pss:/ {s += $2} END {print s + 0}' /proc/"$p"/smaps_rollup) / 1024))
    else printf '%-16s not running\n' $n; rc=1; fi
  done
  echo "https://127.0.0.1:$API_PORT  kubeconfig $K"
  return $rc
}
c=${1:-}; [ $# -eq 0 ] || shift
case $c in
up)      up ;;
down)    down ;;
status)  status ;;
stop)    load_ports; end_process "$API_STATE/kube-apiserver.pid" "$BIN/kube-apiserver" ;;
add)     load_ports; [ $# -gt 0 ] || fail 2 "add what? api.sh --help"; add "$@" ;;
remove)  load_ports; [ $# -gt 0 ] || fail 2 "remove what? api.sh --help"; end_process "$API_STATE/$1.pid" "$BIN/$1" ;;
start)   load_ports; alive kube-apiserver || start_apiserver; wait_ready ;;
kubectl) load_ports; exec "$BIN/kubectl" --kubeconfig "$K" --cache-dir "$API_STATE/kube-cache" "$@" ;;
helm)    load_ports; exec "$BIN/helm" --kubeconfig "$K" "$@" ;;
path)
  case ${1:-} in
  kubeconfig) echo "$K" ;;
  audit)      echo "$API_STATE/audit.log" ;;
  log)        echo "$API_STATE/kube-apiserver.log" ;;
  etcd-log)   echo "$API_STATE/etcd.log" ;;
  *)          fail 2 "path of kubeconfig, audit, log or etcd-log, not '${1:-}'" ;;
  esac ;;
-h|--help|help) usage "$0" ;;
*) usage "$0" >&2; exit 2 ;;
esac
