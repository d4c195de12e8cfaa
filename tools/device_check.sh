#!/usr/bin/env bash
# What only a GPU can show, in five minutes at most: builds the kernels for this machine's GPU, runs their
# tests on it, again under the four tools of compute-sanitizer, then the collectives of several ranks
# that share it (also staged, in graphs, over NCCL), and measures. Ends with
# "N passed, N failed" and a status that is 0 only where none failed. On a machine without a GPU it
# says that nothing was run, and its status is 77, which ctest and others take for "skipped".
#
# Needs nvcc and cmake; the torch backend is checked where python3 has torch. Logs, and the roofline
# as JSON, go to $OUT (build/device by default).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

OUT=${OUT:-build/device}
TREE=build/gpu
LIMIT=300  # seconds for everything; each check has its own limit besides
passed=0
failed=0

skip() {
  # No counts: nothing was tested, and "0 failed" would read like a result.
  echo "device_check has not run: $*"
  exit 77
}

step() {  # step NAME SECONDS COMMAND...: one check, its output in $OUT/NAME.log
  local name=$1 limit=$2 begun=$SECONDS left=$((LIMIT - SECONDS))
  shift 2
  if ((left <= 0)); then
    failed=$((failed + 1))
    echo "FAILED  $name: the $LIMIT s for all checks were over before it began"
    return 1
  fi
  if timeout "$((limit < left ? limit : left))" "$@" >"$OUT/$name.log" 2>&1; then
    passed=$((passed + 1))
    echo "passed  $name ($((SECONDS - begun)) s): $(tail -n 1 "$OUT/$name.log")"
  else
    failed=$((failed + 1))
    echo "FAILED  $name ($((SECONDS - begun)) s), the end of $OUT/$name.log:"
    tail -n 20 "$OUT/$name.log"
    return 1
  fi
}

finish() {
  echo "$passed passed, $failed failed"
  exit $((failed > 0))
}

gpu=$(nvidia-smi --query-gpu=name,compute_cap,driver_version --format=csv,noheader 2>/dev/null |
  head -n 1)
[[ -n $gpu ]] || skip "nvidia-smi finds no GPU"
command -v nvcc >/dev/null || export PATH="$PATH:/usr/local/cuda/bin"
command -v nvcc >/dev/null || skip "there is no nvcc"
mkdir -p "$OUT"
echo "GPU: $gpu"
architecture=$(cut -d, -f2 <<<"$gpu" | tr -d ' .')

# The device tests need no GoogleTest, so that a bare machine will do.
step configure 30 cmake -S . -B "$TREE" -DAGOQ_CUDA=ON "-DAGOQ_CUDA_ARCHS=$architecture-real" \
  -DAGOQ_BUILD_DEVICE_TESTS=ON || finish
step build 120 cmake --build "$TREE" -j "$(nproc)" \
  --target kernels_device_test kernel_roofline device_world_check || finish

step kernels 30 "$TREE/tests/cuda/kernels_device_test"
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck initcheck synccheck; do
    step "$tool" 40 compute-sanitizer --tool "$tool" --error-exitcode 9 \
      "$TREE/tests/cuda/kernels_device_test" --quick
  done
else
  failed=$((failed + 1))
  echo "FAILED  compute-sanitizer is not installed, so its four tools have not run"
fi
# NCCL of the Python packages, where no other is named.
if [[ -z ${AGOQ_NCCL_PATH:-} ]] &&
  folder=$(python3 -c 'import nvidia.nccl as nccl; print(list(nccl.__path__)[0])' 2>/dev/null); then
  export AGOQ_NCCL_PATH=$folder/lib/libnccl.so.2
fi
step collectives 45 "$TREE/tests/cuda/device_world_check" "$OUT/launch.json"
grep -v '^passed' "$OUT/collectives.log"
step roofline 30 "$TREE/tests/cuda/kernel_roofline" "$OUT/roofline.json"
cat "$OUT/roofline.log"
# The torch backend from the same tree, where there is a torch for this GPU.
package=$PWD/$TREE/package
build_package() {
  cmake -S . -B "$TREE" -DAGOQ_BUILD_PYTHON=ON -DCMAKE_INSTALL_LIBDIR=lib &&
    cmake --build "$TREE" -j "$(nproc)" &&
    cmake --install "$TREE" --prefix "$package/agoq_comm" &&
    cp -r python/agoq_comm "$package/"
}
if python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
  export -f build_package
  export TREE package
  step torch_build 120 bash -c build_package &&
    step torch 90 env PYTHONPATH="$package" python3 tests/cuda/torch_device_check.py
else
  echo "skipped torch: python3 has no torch that sees this GPU"
fi
finish
