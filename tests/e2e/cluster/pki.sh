#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# pki.sh DIR HOST:PORT NODE...
# One CA for the cluster and one for the front proxy, EC keys, 30 days, and a kubeconfig for each client of the API server
# at HOST:PORT. For tests only.
set -eu
. "$(dirname "$0")"/env.sh
[ $# -ge 2 ] && [ "$1" != --help ] || { usage "$0"; exit 2; }
D=$1 SERVER=$2; shift 2
umask 077; mkdir -p "$D"; cd "$D"
EC="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"

# Certificates of a cluster that has been there for an hour: clocks that are wrong by less do not distrust it.
valid_already() { if command -v faketime > /dev/null; then faketime -f -1h "$@"; else "$@"; fi; }

ca() { # file name
  valid_already openssl req -x509 $EC -days 30 -subj "/CN=$2" -keyout "$1.key" -out "$1.crt" \
    -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign,cRLSign,digitalSignature" 2>/dev/null
}
leaf() { # file ca subject eku [san]
  openssl req $EC -subj "$3" -keyout "$1.key" -out "$1.csr" 2>/dev/null
  printf 'basicConstraints=CA:FALSE\nkeyUsage=digitalSignature,keyEncipherment\nextendedKeyUsage=%s\n%s\n' "$4" "${5:+subjectAltName=$5}" > "$1.ext"
  valid_already openssl x509 -req -in "$1.csr" -CA "$2.crt" -CAkey "$2.key" -CAcreateserial -days 30 -extfile "$1.ext" -out "$1.crt" 2>/dev/null
  rm "$1.csr" "$1.ext"
}
kc() { # file
  cat > "$1.kubeconfig" <<K
apiVersion: v1
kind: Config
current-context: c
contexts: [{ name: c, context: { cluster: c, user: u } }]
clusters: [{ name: c, cluster: { server: "https://$SERVER", certificate-authority-data: $(base64 -w0 ca.crt) } }]
users: [{ name: u, user: { client-certificate-data: $(base64 -w0 "$1.crt"), client-key-data: $(base64 -w0 "$1.key") } }]
K
}
ca ca kubernetes-ca
ca front-proxy-ca front-proxy-ca
leaf apiserver ca /CN=kube-apiserver serverAuth "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,DNS:localhost,IP:10.96.0.1,IP:127.0.0.1,IP:${SERVER%:*}"
leaf apiserver-kubelet ca /O=system:masters/CN=kube-apiserver-kubelet-client clientAuth
leaf front-proxy front-proxy-ca /CN=front-proxy-client clientAuth
leaf admin ca /O=system:masters/CN=admin clientAuth; kc admin
leaf kcm ca /CN=system:kube-controller-manager clientAuth; kc kcm
leaf sched ca /CN=system:kube-scheduler clientAuth; kc sched
leaf proxy ca /CN=system:kube-proxy clientAuth; kc proxy
for n in "$@"; do leaf "$n" ca "/O=system:nodes/CN=system:node:$n" clientAuth; kc "$n"; done
openssl ecparam -genkey -name prime256v1 -noout -out sa.key 2>/dev/null
openssl ec -in sa.key -pubout -out sa.pub 2>/dev/null
