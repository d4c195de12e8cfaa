#!/usr/bin/env bash
# What only a GPU can show, in a few minutes: builds the kernels for this machine's GPU, runs their
# tests on it, again under the four tools of compute-sanitizer, and measures them. Ends with
# "N passed, N failed" and a status that is 0 only where none failed. On a machine without a GPU it
# says that nothing was run, and its status is 77, which ctest and others take for "skipped".
#
# Needs nvcc and cmake. Logs, and the roofline as JSON, go to $OUT (build/device by default).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

OUT=${OUT:-build/device}
TREE=build/gpu
passed=0
failed=0

skip() {
  # No counts: nothing was tested, and "0 failed" would read like a result.
  echo "device_check has not run: $*"
  exit 77
}

step() {  # step NAME SECONDS COMMAND...: one check, its output in $OUT/NAME.log
  local name=$1 limit=$2 begun=$SECONDS
  shift 2
  if timeout "$limit" "$@" >"$OUT/$name.log" 2>&1; then
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
step configure 60 cmake -S . -B "$TREE" -DAGOQ_CUDA=ON "-DAGOQ_CUDA_ARCHS=$architecture-real" \
  -DAGOQ_BUILD_DEVICE_TESTS=ON || finish
step build 240 cmake --build "$TREE" -j "$(nproc)" --target kernels_device_test kernel_roofline ||
  finish

step kernels 60 "$TREE/tests/cuda/kernels_device_test"
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck initcheck synccheck; do
    step "$tool" 90 compute-sanitizer --tool "$tool" --error-exitcode 9 \
      "$TREE/tests/cuda/kernels_device_test" --quick
  done
else
  failed=$((failed + 1))
  echo "FAILED  compute-sanitizer is not installed, so its four tools have not run"
fi
step roofline 60 "$TREE/tests/cuda/kernel_roofline" "$OUT/roofline.json"
cat "$OUT/roofline.log"
finish
