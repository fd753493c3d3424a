#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# build.sh [GROUP...]   builds the cluster's programs from Go modules into $BIN; skips what is there in its version
#   api       etcd, kube-apiserver, kubectl: what `api.sh up` needs
#   helm      helm, helm-unittest
#   kube      the rest of Kubernetes, and etcdctl      coredns, kwok, pause: one program each
# Without a GROUP: all. Needs Go on PATH, of any version; the toolchain that the modules ask for is fetched as a module too.
#
# One tools module per product (they pin different client-go versions), made in $TOOLS; nothing of it is committed.
set -eu
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE"/env.sh
KUBE=1.34.10 ETCD=v3.6.4 COREDNS=v1.14.7 HELM=v3.21.3 HELM_UNITTEST=v1.1.2 KWOK=v0.7.0 PAUSE=1
TOOLCHAIN=go1.26.8   # where the Go of this machine cannot fetch one by itself
case ${1:-} in -h|--help|help) usage "$0"; exit 0 ;; esac

export CGO_ENABLED=0 GOTOOLCHAIN="${GOTOOLCHAIN:-auto}" GOWORK=off
export GOFLAGS="${GOFLAGS:-} -trimpath"
mkdir -p "$BIN" "$TOOLS"
BIN=$(cd "$BIN" && pwd); TOOLS=$(cd "$TOOLS" && pwd)
minor=${KUBE#1.}; minor=${minor%%.*}

# have VERSION NAME... : each is there in this version
have() {
  local n version=$1; shift
  for n in "$@"; do [ -x "$BIN/$n" ] && [ "$(cat "$BIN/.$n.version" 2>/dev/null)" = "$version" ] || return 1; done
}
say()  { printf '%s build: %s\n' "$(date +%T)" "$*"; }
# Go 1.21 and newer fetch the toolchain that a module asks for; an older one knows toolchains only as the modules they are.
need_go() {
  local dir
  command -v go > /dev/null || fail 3 "needs Go: apt-get install golang-go, of any version"
  case $(GOTOOLCHAIN=local go env GOVERSION) in
  go1.[0-9]|go1.[0-9].*|go1.1[0-9]*|go1.20*)
    dir=$(cd "$TOOLS" && GOFLAGS= go mod download -json "golang.org/toolchain@v0.0.1-$TOOLCHAIN.$(go env GOOS)-$(go env GOARCH)" |
      sed -n 's/^.*"Dir": "\(.*\)",\{0,1\}$/\1/p')
    [ -x "$dir/bin/go" ] || chmod +x "$dir"/bin/* "$dir"/pkg/tool/*/* || fail 1 "no Go toolchain in '$dir'"   # modules have no modes
    PATH=$dir/bin:$PATH ;;
  esac
}
# put NAME VERSION LDFLAGS PACKAGE : one program, written in whole or not at all
put() {
  local t=$SECONDS
  ! have "$2" "$1" || return 0
  go build -ldflags "-s -w $3" -o "$BIN/.$1.new" "$4"
  mv "$BIN/.$1.new" "$BIN/$1"; echo "$2" > "$BIN/.$1.version"
  say "$1 $((SECONDS - t)) s"
}
# mod NAME VERSIONS : enters a fresh tools module, or returns 1 when it is complete already
mod() {
  mkdir -p "$TOOLS/$1"; cd "$TOOLS/$1"
  [ "$(cat .ok 2>/dev/null)" != "$2" ] || return 1
  rm -f go.mod go.sum .ok; go mod init "example.test/$1" 2>/dev/null
}
quiet() { "$@" > "$TOOLS/get.log" 2>&1 || { cat "$TOOLS/get.log" >&2; fail 1 "failed: $*"; }; }

kube_module() {
  need_go
  mod kube "$KUBE $ETCD" || return 0
  go mod edit -go=1.24.0 -godebug=default=go1.24 -require=k8s.io/kubernetes@v$KUBE
  # the published go.mod names its own parts at v0.0.0; every dependent has to give their real versions
  local m p
  for m in api apiextensions-apiserver apimachinery apiserver cli-runtime client-go cloud-provider cluster-bootstrap \
    code-generator component-base component-helpers controller-manager cri-api cri-client csi-translation-lib \
    dynamic-resource-allocation endpointslice externaljwt kms kube-aggregator kube-controller-manager kube-proxy \
    kube-scheduler kubectl kubelet metrics mount-utils pod-security-admission sample-apiserver sample-cli-plugin \
    sample-controller; do go mod edit -replace="k8s.io/$m=k8s.io/$m@v0.${KUBE#1.}"; done
  for p in kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl; do quiet go get -tool "k8s.io/kubernetes/cmd/$p@v$KUBE"; done
  quiet go get -tool "go.etcd.io/etcd/server/v3@$ETCD" "go.etcd.io/etcd/etcdctl/v3@$ETCD"
  echo "$KUBE $ETCD" > .ok
}
# kube_programs NAME...
kube_programs() {
  local p x=
  ! have "$KUBE" "$@" || return 0
  kube_module
  for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    x="$x -X $p.gitVersion=v$KUBE -X $p.gitMajor=1 -X $p.gitMinor=$minor -X $p.gitTreeState=clean -X $p.gitCommit=module -X $p.buildDate=1970-01-01T00:00:00Z"
  done
  for p in "$@"; do put "$p" "$KUBE" "$x" "k8s.io/kubernetes/cmd/$p"; done
}
api() {
  if ! have "$ETCD" etcd; then kube_module; put etcd "$ETCD" "" go.etcd.io/etcd/server/v3; fi
  kube_programs kube-apiserver kubectl
}
kube() {
  api
  if ! have "$ETCD" etcdctl; then kube_module; put etcdctl "$ETCD" "" go.etcd.io/etcd/etcdctl/v3; fi
  kube_programs kube-controller-manager kube-scheduler kubelet kube-proxy
}
coredns() {
  ! have "$COREDNS" coredns || return 0
  need_go
  if mod coredns "$COREDNS"; then
    # only the plugins used: the stock main pulls in three cloud vendors' SDKs
    { echo 'package main'; echo 'import ('
      for p in bind cache errors hosts kubernetes log metrics ready template; do echo "_ \"github.com/coredns/coredns/plugin/$p\""; done
      printf '"github.com/coredns/coredns/coremain"\n)\nfunc main() { coremain.Run() }\n'; } > main.go
    go mod edit -require="github.com/coredns/coredns@$COREDNS"
    quiet go build -mod=mod -o /dev/null . ; echo "$COREDNS" > .ok
  fi
  put coredns "$COREDNS" "" .
}
helm() {
  have "$HELM" helm && have "$HELM_UNITTEST" helm-unittest && return 0
  need_go
  if mod helm "$HELM $HELM_UNITTEST"; then
    # as in helm-unittest's own go.mod, whose replacement a dependent has to repeat
    go mod edit -replace=github.com/vmware-labs/yaml-jsonpath=github.com/helm-unittest/yaml-jsonpath@v0.4.0
    quiet go get -tool "helm.sh/helm/v3/cmd/helm@$HELM" "github.com/helm-unittest/helm-unittest/cmd/helm-unittest@$HELM_UNITTEST"
    echo "$HELM $HELM_UNITTEST" > .ok
  fi
  local p x="-X helm.sh/helm/v3/internal/version.version=$HELM"
  for p in chartutil lint/rules; do x="$x -X helm.sh/helm/v3/pkg/$p.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/$p.k8sVersionMinor=$minor"; done
  put helm "$HELM" "$x" helm.sh/helm/v3/cmd/helm
  put helm-unittest "$HELM_UNITTEST" "" github.com/helm-unittest/helm-unittest/cmd/helm-unittest
}
kwok() {
  have "$KWOK" kwok && [ -e "$BIN/kwok-stages.yaml" ] && return
  need_go
  if mod kwok "$KWOK"; then quiet go get -tool "sigs.k8s.io/kwok/cmd/kwok@$KWOK"; echo "$KWOK" > .ok; fi
  put kwok "$KWOK" "" sigs.k8s.io/kwok/cmd/kwok
  # the module's own plain behaviours: nodes are Ready with a lease, pods start at once, jobs complete, deletions finish
  local f d; cd "$TOOLS/kwok"; d=$(go list -m -f '{{.Dir}}' sigs.k8s.io/kwok)/kustomize/stage
  for f in node/fast/node-initialize node/heartbeat-with-lease/node-heartbeat-with-lease pod/fast/pod-ready pod/fast/pod-complete pod/fast/pod-delete; do
    echo ---; cat "$d/$f.yaml"; done > "$BIN/kwok-stages.yaml"
}
pause() {
  ! have "$PAUSE" pause || return 0
  command -v gcc > /dev/null || fail 3 "needs gcc and libc6-dev"
  gcc -Os -static -s -o "$BIN/.pause.new" "$HERE/pause.c"; mv "$BIN/.pause.new" "$BIN/pause"; echo "$PAUSE" > "$BIN/.pause.version"; say pause
}

[ $# -gt 0 ] || set -- pause api kube coredns helm kwok
for w in "$@"; do
  case $w in
  api|helm|kube|coredns|kwok|pause) "$w" ;;
  *) fail 2 "no group named '$w': api helm kube coredns kwok pause" ;;
  esac
done
