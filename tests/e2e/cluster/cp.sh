#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# cp.sh up | down | start|stop NAME | wait : control plane as plain processes in kt1's network namespace, outside any node.
# NAME: etcd kube-apiserver kube-controller-manager kube-scheduler coredns, and kwok (only on demand)
# start does nothing where NAME runs already.
set -eu
. "$(dirname "$0")"/env.sh
P=$STATE/pki L=$STATE/cp

run() { # NAME ARGS...
  local n=$1; shift
  setsid nsenter --net=/run/netns/kt1 "$BIN/$n" "$@" >> "$L/$n.log" 2>&1 < /dev/null &
  echo $! > "$L/$n.pid"
}
config() {
  mkdir -p "$L"
  cat > "$L/audit.yaml" <<E
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- { level: None, users: ["system:apiserver", "system:kube-scheduler", "system:kube-controller-manager"] }
- { level: None, userGroups: ["system:nodes"] }
- { level: Metadata }
E
  cat > "$L/sched.yaml" <<E
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: { leaderElect: false }
clientConnection: { kubeconfig: $P/sched.kubeconfig, qps: 300, burst: 600 }
E
  cat > "$L/Corefile" <<E
cluster.local:53 in-addr.arpa:53 {
  bind $IP
  errors
  ready $IP:8181
  prometheus $IP:9153
  kubernetes cluster.local in-addr.arpa {
    kubeconfig $P/admin.kubeconfig c
    pods insecure
    ttl 5
  }
  cache 5
}
.:53 {
  bind $IP
  template ANY ANY {
    rcode NXDOMAIN
  }
}
E
}
start() {
  case $1 in
  etcd) run etcd --name e --data-dir "$L/etcd" --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
    --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 --initial-cluster e=http://127.0.0.1:2380 \
    --unsafe-no-fsync --log-level=warn ;;
  kube-apiserver) run kube-apiserver --etcd-servers=http://127.0.0.1:2379 --bind-address=0.0.0.0 --advertise-address=$IP --secure-port=6443 \
    --tls-cert-file="$P/apiserver.crt" --tls-private-key-file="$P/apiserver.key" --client-ca-file="$P/ca.crt" \
    --service-cluster-ip-range=10.96.0.0/16 --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --allow-privileged=true \
    --service-account-issuer=https://kubernetes.default.svc.cluster.local --service-account-key-file="$P/sa.pub" \
    --service-account-signing-key-file="$P/sa.key" --kubelet-client-certificate="$P/apiserver-kubelet.crt" \
    --kubelet-client-key="$P/apiserver-kubelet.key" --kubelet-preferred-address-types=InternalIP \
    --requestheader-client-ca-file="$P/front-proxy-ca.crt" --requestheader-allowed-names=front-proxy-client \
    --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group --requestheader-extra-headers-prefix=X-Remote-Extra- \
    --proxy-client-cert-file="$P/front-proxy.crt" --proxy-client-key-file="$P/front-proxy.key" --enable-aggregator-routing=true \
    --default-not-ready-toleration-seconds=10 --default-unreachable-toleration-seconds=10 \
    --audit-policy-file="$L/audit.yaml" --audit-log-path="$L/audit.log" --audit-log-maxsize=100 --audit-log-maxbackup=1 --v=1 ;;
  kube-controller-manager) run kube-controller-manager --kubeconfig="$P/kcm.kubeconfig" --authentication-kubeconfig="$P/kcm.kubeconfig" \
    --authorization-kubeconfig="$P/kcm.kubeconfig" --service-account-private-key-file="$P/sa.key" --root-ca-file="$P/ca.crt" \
    --cluster-signing-cert-file="$P/ca.crt" --cluster-signing-key-file="$P/ca.key" --use-service-account-credentials=true \
    --leader-elect=false --bind-address=127.0.0.1 --allocate-node-cidrs=false \
    --node-monitor-period=2s --node-monitor-grace-period=16s --enable-hostpath-provisioner=true \
    --flex-volume-plugin-dir="$L/volumeplugins" --kube-api-qps=300 --kube-api-burst=600 --v=1 ;;
  kube-scheduler) run kube-scheduler --config="$L/sched.yaml" --authentication-kubeconfig="$P/sched.kubeconfig" \
    --authorization-kubeconfig="$P/sched.kubeconfig" --bind-address=127.0.0.1 --v=1 ;;
  coredns) run coredns -conf "$L/Corefile" ;;
  kwok) run kwok --kubeconfig="$P/admin.kubeconfig" --manage-all-nodes=false --manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake \
    --cidr=10.245.0.0/16 --node-ip=$IP --node-lease-duration-seconds=16 --config="$BIN/kwok-stages.yaml" --v=WARN ;;
  *) fail 2 "unknown: $1" ;;
  esac
}
stop() { end_process "$L/$1.pid" "$BIN/$1"; }
ready() {
  local end=$((SECONDS + 120))
  until in_ns kt1 curl -sf -m 1 --cacert "$P/ca.crt" --cert "$P/admin.crt" --key "$P/admin.key" https://$IP:6443/readyz > /dev/null; do
    ! ended "$L/kube-apiserver.pid" || { tail -20 "$L/kube-apiserver.log" >&2; fail 1 "the API server has ended, its last lines are above"; }
    [ $SECONDS -lt $end ] || { echo "the API server is not ready" >&2; tail -20 "$L/kube-apiserver.log" >&2; exit 1; }
    look_again 0.2
  done
}
case ${1:-} in
up)    config; start etcd; start kube-apiserver; ready; start kube-controller-manager; start kube-scheduler; start coredns ;;
down)  for n in kwok coredns kube-scheduler kube-controller-manager kube-apiserver etcd; do stop $n; done ;;
start) running "$L/$2.pid" "$BIN/$2" || start "$2" ;;
stop)  stop "$2" ;;
wait)  ready ;;
*) usage "$0" >&2; exit 2 ;;
esac
