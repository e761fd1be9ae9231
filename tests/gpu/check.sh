#!/usr/bin/env bash
# Everything that wants a real GPU, in one command: builds for the card at hand, runs the op sweep and whole
# models on it against the CPU, looks for memory errors and races, then measures. Needs no network; about eight
# minutes on 16 cores. The table at the end is what goes to docs/performance.md.
set -uo pipefail
cd "$(dirname "$0")/../.."
build=${NIBBLE_GPU_BUILD:-build-gpu}
log=$build/check.log
mkdir -p "$build"
: >"$log"
failures=0

step() {  # name, command...
  local name=$1 start=$SECONDS
  shift
  if "$@" >>"$log" 2>&1; then
    echo "ok      $name ($((SECONDS - start)) s)"
  else
    echo "FAILED  $name ($((SECONDS - start)) s), see $log"
    failures=$((failures + 1))
  fi
}

command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
step "configure" cmake -S . -B "$build" -DNIBBLE_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=native -DNIBBLE_WERROR=ON
step "build" cmake --build "$build" --parallel "$(nproc)" --target nibble test_cuda_card
if [ "$failures" -gt 0 ]; then tail -30 "$log"; exit 1; fi

test=$build/tests/test_cuda_card nibble=$build/tools/nibble
step "ops and models against the CPU" "$test"
grep -E "ERROR|error [0-9]" "$log" | head -20
if command -v compute-sanitizer >/dev/null; then
  # The emulation covers all shapes; here a model's own launches are enough, and they are what time allows.
  step "memcheck" timeout 120 compute-sanitizer --tool memcheck --error-exitcode 1 "$test" -tc="a model*"
  step "racecheck" timeout 120 compute-sanitizer --tool racecheck --error-exitcode 1 "$test" -tc="a model*"
else
  echo "-       compute-sanitizer is not installed"
fi

tokens() { "$nibble" run -p "Once upon a time" -n 40 --temperature 0 --raw "$@" 2>>"$log"; }
if [ "$(tokens --device cuda:0)" = "$(tokens --device cpu)" ]; then
  echo "ok      greedy text of the bundled model"
else
  echo "differs greedy text of the bundled model (other arithmetic: a near tie, or a bug if it is nonsense)"
fi

measure() { echo; echo "== $*"; timeout 100 "$nibble" bench --device cuda:0 "$@" 2>&1 | tail -n +2; }
for shape in llama-3.2-1b llama-3.1-8b; do
  for type in int4 int8 nf4 bf16; do measure --shape "$shape" --type "$type" -p 512,4096 -n 64 -r 2; done
done
measure --shape llama-3.1-8b --type int4 -p 0 -n 32 -r 2 --sequences 1,8,32
measure --shape llama-3.2-1b --type int4 -p 0 -n 32 -r 2 -d 32000
exit "$failures"
