#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# bundle.sh BUILD FOLDER [WHEEL]   makes FOLDER, which must be empty or not there: the programs of BUILD that check and time the code
# for GPUs, and every library they are linked with, the C library included. It runs on any Linux machine of this processor
# with an NVIDIA driver: FOLDER/run. WHEEL is the Python package for CPython 3.12 and newer; with it go an example and its data.
set -euo pipefail

(($# == 2 || $# == 3)) || { sed -n 's/^# \{0,1\}//p' "$0" | sed -n '2,$p' >&2; exit 2; }
build=$1 folder=$2 wheel=${3:-}
here=$(dirname "$(readlink -f "$0")")
readonly PROGRAMS=(device_test device_speed collective_nccl_test nccl_speed)
readonly MIB_MAX=64

mkdir -p "$folder"
[[ -z $(ls -A "$folder") ]] || { echo "bundle.sh: $folder must be empty" >&2; exit 2; }
mkdir "$folder/bin" "$folder/lib"
for program in "${PROGRAMS[@]}"; do
  [[ -x $build/tests/$program ]] || { echo "bundle.sh: no $build/tests/$program: build it first" >&2; exit 2; }
  strip --strip-unneeded -o "$folder/bin/$program" "$build/tests/$program"
done
# Each library under the name that programs ask for; the loader under one name.
ldd "${PROGRAMS[@]/#/$build/tests/}" | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 } $1 ~ /^\/.*ld-linux/ { print "loader", $1 }' |
  sort -u | while read -r name path; do cp -L "$path" "$folder/lib/$name"; done
[[ -e $folder/lib/loader ]] || { echo "bundle.sh: ldd names no loader" >&2; exit 1; }
install -m 755 "$here/run.sh" "$folder/run"
if [[ $wheel ]]; then
  examples=runtime/examples
  mkdir -p "$folder/python/fashion-mnist" "$folder/python/$examples/python"
  cp "$wheel" "$here/torch_on_gpu.py" "$folder/python"
  cp /usr/share/datasets/fashion-mnist/*.gz "$folder/python/fashion-mnist"
  cp "$here/../../$examples/torch-fashion-mnist.yaml" "$folder/python/$examples"
  cp "$here/../../$examples/python/fashion_mnist.py" "$folder/python/$examples/python"
fi
mib=$(du -sm --apparent-size "$folder" | cut -f1)
((mib <= MIB_MAX)) || { echo "bundle.sh: $folder has $mib MiB, more than $MIB_MAX" >&2; exit 1; }
echo "$folder: $mib MiB; on a machine with an NVIDIA driver: $folder/run"
