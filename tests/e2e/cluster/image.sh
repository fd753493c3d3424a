#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# image.sh NAME:TAG FILE.tar ROOT ENTRYPOINT... : a one-layer image archive from the folder ROOT, without a builder or its store.
# In front of the words of ENTRYPOINT, USER=... sets the user.
set -eu
name=$1 out=$2 root=$3; shift 3
user=; case ${1:-} in USER=*) user=${1#USER=}; shift ;; esac
t=$(mktemp -d); trap 'rm -rf "$t"' EXIT
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$root" -cf "$t/layer.tar" .
id=$(sha256sum "$t/layer.tar" | cut -d' ' -f1)
jq -n --arg id "sha256:$id" --arg user "$user" '{architecture: "amd64", os: "linux", created: "1970-01-01T00:00:00Z",
  config: {User: $user, Entrypoint: $ARGS.positional, Env: ["PATH=/usr/local/bin:/usr/bin:/bin:/sbin"]},
  rootfs: {type: "layers", diff_ids: [$id]}, history: [{created: "1970-01-01T00:00:00Z"}]}' --args "$@" > "$t/config.json"
c=$(sha256sum "$t/config.json" | cut -d' ' -f1); mv "$t/config.json" "$t/$c.json"
jq -n --arg c "$c.json" --arg n "$name" '[{Config: $c, RepoTags: [$n], Layers: ["layer.tar"]}]' > "$t/manifest.json"
mkdir -p "$(dirname "$out")"
tar -C "$t" -cf "$out.new" manifest.json "$c.json" layer.tar; mv "$out.new" "$out"
