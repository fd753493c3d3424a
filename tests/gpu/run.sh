#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# run [FOLDER]   checks every computation for GPUs against the CPU's code, and collectives by NCCL, times each, and prints one
# table. Leaves logs and figures in FOLDER, this one by default: device_test.log, nccl_test.log, speed.json, nccl.json.
# SPEED_ARGUMENTS="--mib 64" and NCCL_ARGUMENTS="--ranks 1" and the like are passed to the programs that time.
# NCCL is that of the system, of a wheel or of PyTorch; without one its part is left out. NCCL_LIBRARY=FILE names another.
# Then, with a Python from 3.12 on that has PyTorch for CUDA (PYTHON=FILE names one), and if the bundle has the Python package:
# a push-pull from the GPU's memory and from the host's, and a training. TORCH_ARGUMENTS is passed to the program for that, whose
# logs and figures are in torch/ and torch.json.
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

# NCCL: that which is named, of the loader's cache, of wheels, or of a PyTorch that has it beside itself.
nccl_library() {
  [ -z "${NCCL_LIBRARY:-}" ] || { echo "$NCCL_LIBRARY"; return; }
  found=$( (ldconfig -p || /sbin/ldconfig -p) 2>/dev/null | sed -n 's/.*libnccl\.so\.2 .*x86-64.* => //p' | head -n 1)
  [ -z "$found" ] || { echo "$found"; return; }
  for python in python3 python; do
    "$python" - 2>/dev/null <<'TEXT' && return
import glob, sys
for folder in sys.path:
    for place in ("nvidia/nccl/lib", "nvidia/cu*/lib", "torch/lib"):
        for file in glob.glob(f"{glob.escape(folder)}/{place}/libnccl.so.2"):
            print(file)
            sys.exit(0)
sys.exit(1)
TEXT
  done
}

# A Python with PyTorch for which the package is built.
python_with_torch() {
  for python in ${PYTHON:-python3 python python3.14 python3.13 python3.12}; do
    ! "$python" -c 'import sys, torch; sys.exit(sys.version_info < (3, 12))' 2>/dev/null || { echo "$python"; return; }
  done
}

# With the bundle's libraries only, whatever this machine has; NVIDIA's are beside the driver, NCCL where it was found.
start() {
  program=$1
  shift
  timeout 300 "$here/lib/loader" --library-path "$here/lib${driver:+:$driver}${nccl:+:$nccl}" "$here/bin/$program" "$@"
}

# check NAME PROGRAM: a program of tests; prints a line, and what failed.
check() {
  log=$out/$1.log
  start "$2" >"$log" 2>&1 || code=1
  # A case is its line in the log, once.
  passed=$(grep -c "^\[ *OK \] .*/gpu ([0-9]* ms)" "$log")
  failed=$(grep -c "^\[ *FAILED *\] .*/gpu.* ([0-9]* ms)" "$log")
  skipped=$(grep -c "^\[ *SKIPPED *\] .*/gpu ([0-9]* ms)" "$log")
  [ "$passed" -gt 0 ] && [ "$failed" -eq 0 ] || code=1
  printf '%-26s %s passed, %s failed, %s skipped\n' "$1" "$passed" "$failed" "$skipped"
  grep -E '^\[ *FAILED *\].* ms\)|: Failure|^UNAVAILABLE|^INTERNAL|^FAILED_PRECONDITION|no kernels' "$log" | sort -u | head -n 20
}

driver=$(driver_folder)
if [ -z "$driver" ]; then
  echo "run: there is no NVIDIA driver on this machine: no libcuda.so.1 in the loader's cache, LD_LIBRARY_PATH or the usual" \
    "folders. Install the driver, or start the container with a GPU." >&2
  exit 3
fi
library=$(nccl_library)
nccl=${library:+$(dirname "$library")}
# Says why it cannot measure anything, with 3 where there is no GPU, before the long part begins.
start device_speed --mib 1 --rounds 1 >/dev/null || exit $?

code=0
# Ranks that share a GPU, where NCCL has that.
export NCCL_MULTI_RANK_GPU_ENABLE=1
printf '%-26s %s\n' driver "$driver/libcuda.so.1" NCCL "${library:-none found}"
check device_test device_test
start device_speed --json "$out/speed.json" ${SPEED_ARGUMENTS:-} >"$out/speed.txt" || code=1
cat "$out/speed.txt"
[ -s "$out/speed.json" ] && ! grep -q MISSED "$out/speed.txt" || code=1
# Last, and within a limit: ranks that share a GPU are what is most likely to hang.
[ -z "$library" ] || check nccl_test collective_nccl_test
[ -z "$library" ] || start nccl_speed --json "$out/nccl.json" ${NCCL_ARGUMENTS:-} || code=1
if [ -d "$here/python" ]; then
  python=$(python_with_torch)
  if [ -n "$python" ]; then
    rm -rf "$out/torch" && mkdir "$out/torch"
    "$python" -m zipfile -e "$here"/python/*.whl "$out/torch/site"
    chmod +x "$out/torch/site/pushpull/bin/pushpull"  # zipfile forgets that
    PYTHONPATH=$out/torch/site "$python" -B "$here/python/torch_on_gpu.py" "$out" ${TORCH_ARGUMENTS:-} || code=1
  else
    echo "no Python from 3.12 on that has PyTorch: its part is left out; PYTHON=FILE names one"
  fi
fi
exit "$code"
