#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# net.sh up N | cut I | heal I | down
# kt0 = a switch and nothing else; kt1..ktN = nodes (kt1 also holds the control plane); no uplink anywhere.
set -eu
. "$(dirname "$0")"/env.sh
case ${1:-} in
up)
  ip netns add kt0
  in_ns kt0 ip link set lo up
  in_ns kt0 ip link add sw type bridge
  in_ns kt0 ip link set sw up
  # the switch must not run bridged packets through iptables; the nodes must
  in_ns kt0 sysctl -qw net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0 net.bridge.bridge-nf-call-arptables=0
  for i in $(seq 1 "$2"); do
    ip netns add kt$i
    in_ns kt$i ip link set lo up
    ip link add p$i netns kt0 type veth peer name und0 netns kt$i
    in_ns kt0 ip link set p$i master sw up
    in_ns kt$i ip addr add 172.30.0.$i/24 dev und0
    in_ns kt$i ip link set und0 up
    in_ns kt$i sysctl -qw net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1
    in_ns kt$i ip route add 10.96.0.0/16 dev und0     # a ClusterIP must be routable before OUTPUT DNAT sees it
  done
  for i in $(seq 1 "$2"); do for j in $(seq 1 "$2"); do
    [ "$i" = "$j" ] || in_ns kt$i ip route add 10.244.$j.0/24 via 172.30.0.$j
  done; done ;;
cut)  in_ns kt0 ip link set p"$2" down ;;
heal) in_ns kt0 ip link set p"$2" up ;;
down) for f in /run/netns/kt[0-9]*; do [ ! -e "$f" ] || ip netns del "$(basename "$f")"; done ;;
*) usage "$0" >&2; exit 2 ;;
esac
