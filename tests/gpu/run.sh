#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# run [FOLDER]   checks every computation for GPUs against the CPU's code, times each, and prints one table. Leaves tests.json,
# tests.log and speed.json in FOLDER, this one by default.
# Exit codes: 0 all is well, 1 a check failed or a speed is too low, 3 this machine has no NVIDIA driver or shows no GPU.
set -u
here=$(dirname "$(readlink -f "$0")")
out=${1:-$here}
mkdir -p "$out"

# Where the driver's library is: where the system's loader finds it, else where container runtimes put it.
driver_folder() {
  found=$( (ldconfig -p || /sbin/ldconfig -p) 2>/dev/null | sed -n 's/.*libcuda\.so\.1 .*x86-64.* => //p' | head -n 1)
  [ -z "$found" ] || { dirname "$found"; return; }
  for folder in $(echo "${LD_LIBRARY_PATH:-}" | tr ':' ' ') /usr/local/nvidia/lib64 /usr/local/nvidia/lib /usr/lib/x86_64-linux-gnu \
    /usr/lib64 /usr/lib/wsl/lib /run/opengl-driver/lib; do
    [ ! -e "$folder/libcuda.so.1" ] || { echo "$folder"; return; }
  done
}

# With the bundle's libraries only, whatever this machine has; NVIDIA's are beside the driver.
start() {
  program=$1
  shift
  "$here/lib/loader" --library-path "$here/lib${driver:+:$driver}" "$here/bin/$program" "$@"
}

driver=$(driver_folder)
if [ -z "$driver" ]; then
  echo "run: there is no NVIDIA driver on this machine: no libcuda.so.1 in the loader's cache, LD_LIBRARY_PATH or the usual" \
    "folders. Install the driver, or start the container with a GPU." >&2
  exit 3
fi
# Says why it cannot measure anything, with 3 where there is no GPU, before the long part begins.
start device_speed --mib 1 --rounds 1 >/dev/null || exit $?

code=0
start device_test --gtest_output="json:$out/tests.json" >"$out/tests.log" 2>&1 || code=1
# A case is its line in the log, once.
count() { grep -c "^\[ *$1 \] .*/gpu ([0-9]* ms)" "$out/tests.log"; }
passed=$(count OK) failed=$(count FAILED) skipped=$(count SKIPPED)
[ "$skipped" -eq 0 ] && [ "$passed" -gt 0 ] || code=1
printf 'driver: %s\n' "$driver/libcuda.so.1"
printf 'tests on the GPU: %s passed, %s failed, %s skipped\n' "$passed" "$failed" "$skipped"
[ "$code" -eq 0 ] || grep -E '^\[ *(FAILED|SKIPPED) \]|: Failure|^Skipped|no kernels' "$out/tests.log" | head -n 40
start device_speed --json "$out/speed.json" | tee "$out/speed.txt"
[ -s "$out/speed.json" ] || code=1
! grep -q MISSED "$out/speed.txt" || code=1
exit "$code"
