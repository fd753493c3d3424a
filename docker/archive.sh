#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# archive.sh NAME:TAG FILE.tar ROOT ENTRYPOINT... : a one-layer image archive from the folder ROOT, without a builder or its store,
# for `docker load` and `ctr images import`. In front of the words of ENTRYPOINT, USER=... sets the user, and then FOLDER=...
# the working folder.
set -eu
name=$1 out=$2 root=$3; shift 3
user=; case ${1:-} in USER=*) user=${1#USER=}; shift ;; esac
folder=/; case ${1:-} in FOLDER=*) folder=${1#FOLDER=}; shift ;; esac
t=$(mktemp -d); trap 'rm -rf "$t"' EXIT
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$root" -cf "$t/layer.tar" .
id=$(sha256sum "$t/layer.tar" | cut -d' ' -f1)
/usr/bin/python3 - "$id" "$user" "$folder" "$@" > "$t/config.json" <<'PY'
import json, sys
layer, user, folder, *words = sys.argv[1:]
print(json.dumps({"architecture": "amd64", "os": "linux", "created": "1970-01-01T00:00:00Z",
                  "config": {"User": user, "WorkingDir": folder, "Entrypoint": words,
                             "Env": ["PATH=/usr/local/bin:/usr/bin:/bin:/sbin", "HOME=/tmp"]},
                  "rootfs": {"type": "layers", "diff_ids": ["sha256:" + layer]},
                  "history": [{"created": "1970-01-01T00:00:00Z"}]}))
PY
c=$(sha256sum "$t/config.json" | cut -d' ' -f1); mv "$t/config.json" "$t/$c.json"
printf '[{"Config":"%s.json","RepoTags":["%s"],"Layers":["layer.tar"]}]' "$c" "$name" > "$t/manifest.json"
mkdir -p "$(dirname "$out")"
tar -C "$t" -cf "$out.new" manifest.json "$c.json" layer.tar; mv "$out.new" "$out"
