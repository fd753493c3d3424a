#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# PID 1 of a node: private mount, pid and uts namespaces, its network namespace already entered. Started by node.sh.
# args: NAME NUMBER STATE BIN
set -eu
N=$1 I=$2 S=$3 B=$4 D=$3/$1
. "$(dirname "$0")"/env.sh
mount --make-rshared /                          # volumes need shared propagation inside the node
mount -t tmpfs -o mode=755 tmpfs /run           # sockets, xtables lock, pod namespaces: gone with the node, as after a reboot
mkdir -p /run/containerd /run/lock
for p in /var/lib/kubelet /var/lib/containerd /var/lib/cni /var/log/pods /var/log/containers /etc/cni/net.d /etc/containerd; do
  mkdir -p "$p" "$D/root$p"; mount --bind "$D/root$p" "$p"
done
rm -rf "$D/ipam"; hostname "$N"
# each node is a machine of its own: machine id, and a new boot id at each start
[ -s "$D/machine-id" ] || tr -d - < /proc/sys/kernel/random/uuid > "$D/machine-id"
cat /proc/sys/kernel/random/uuid > "$D/boot-id"
[ ! -e /etc/machine-id ] || mount --bind "$D/machine-id" /etc/machine-id
mount --bind "$D/boot-id" /proc/sys/kernel/random/boot_id
for c in $CGROUPS; do mkdir -p "/sys/fs/cgroup/$c/kt/$N"; done
for p in kt "kt/$N"; do for f in cpus mems; do cat /sys/fs/cgroup/cpuset/cpuset.$f > "/sys/fs/cgroup/cpuset/$p/cpuset.$f"; done; done
cat > /etc/containerd/config.toml <<E
version = 2
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  disable_apparmor = true
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
E
cat > /etc/cni/net.d/10-pod.conflist <<E
{ "cniVersion": "1.0.0", "name": "pod", "plugins": [
  { "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
    "ipam": { "type": "host-local", "dataDir": "$D/ipam",
              "ranges": [[{ "subnet": "10.244.$I.0/24" }]], "routes": [{ "dst": "0.0.0.0/0" }] } },
  { "type": "portmap", "capabilities": { "portMappings": true } } ] }
E
cat > "$D/kubelet.yaml" <<E
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
volumePluginDir: /var/lib/kubelet/volumeplugins
cgroupDriver: cgroupfs
cgroupRoot: /kt/$N
failCgroupV1: false
failSwapOn: false
protectKernelDefaults: false
oomScoreAdj: 0
maxOpenFiles: 20000
maxPods: ${MAX_PODS:-110}
clusterDomain: cluster.local
clusterDNS: ["$IP"]
resolvConf: ""
authentication: { anonymous: { enabled: false }, webhook: { enabled: true }, x509: { clientCAFile: $S/pki/ca.crt } }
authorization: { mode: Webhook }
rotateCertificates: false
serverTLSBootstrap: false
evictionHard: { memory.available: "0%", nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%", imagefs.inodesFree: "0%" }
imageGCHighThresholdPercent: 100
systemReserved: { memory: "${SYS_MEM:-2Gi}" }
nodeStatusUpdateFrequency: 5s
nodeLeaseDurationSeconds: 12
syncFrequency: 10s
enforceNodeAllocatable: ["pods"]
E
cat > "$D/proxy.yaml" <<E
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
clientConnection: { kubeconfig: $S/pki/proxy.kubeconfig }
hostnameOverride: $N
clusterCIDR: 10.244.0.0/16
conntrack: { maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s }
iptables: { minSyncPeriod: 200ms, localhostNodePorts: false }
oomScoreAdj: 0
E
# sup NAME COMMAND... : keeps it running, unless the file hold-NAME is there
sup() {
  local n=$1; shift
  while :; do
    if [ ! -e "$D/hold-$n" ]; then
      "$@" >> "$D/$n.log" 2>&1 & echo $! > "$D/$n.pid"
      wait $! || true
    fi
    look_again 0.5
  done
}
rm -f "$D"/hold-*
sup containerd containerd &
until ctr version >/dev/null 2>&1; do look_again 0.1; done
for t in "$S"/images/*.tar; do ctr -n k8s.io images import "$t" > /dev/null; done
sup kubelet "$B/kubelet" --config="$D/kubelet.yaml" --kubeconfig="$S/pki/$N.kubeconfig" --hostname-override="$N" --node-ip=172.30.0.$I --v=2 &
sup kube-proxy "$B/kube-proxy" --config="$D/proxy.yaml" --v=2 &
touch "$D/ready"
while :; do wait -n || true; look_again 0.2; done
