#!/usr/bin/env bash
# Everything that wants a real GPU, in one command: builds for the card at hand, runs the op sweep and whole
# models on it against the CPU, measures, and looks for memory errors and races in small cases. Needs no network;
# ends within eight minutes on 16 cores (NIBBLE_GPU_SECONDS sets another limit). Each step stands by itself: one
# that fails or runs out of time does not keep the others from running. The tables are what goes to
# docs/performance.md.
set -uo pipefail
cd "$(dirname "$0")/../.."
exec </dev/null  # nibble would take a pipe that nobody closes for a part of its prompt
PATH=$PATH:/usr/local/cuda/bin
build=${NIBBLE_GPU_BUILD:-build-gpu}
limit=${NIBBLE_GPU_SECONDS:-470}
log=$build/check.log
mkdir -p "$build"
: >"$log"
failures=0

left() { echo $((limit - SECONDS)); }

# So many seconds, or those that are left; at least one, for `timeout 0` is forever.
at_most() {
  local most=$1
  [ "$most" -le "$(left)" ] || most=$(left)
  [ "$most" -ge 1 ] || most=1
  echo "$most"
}

# At most so many seconds of those that are left; says so where there are too few.
step() {  # name, seconds, command...
  local name=$1 most=$2 start=$SECONDS status=0
  shift 2
  [ "$most" -le "$(left)" ] || most=$(left)
  if [ "$most" -lt 10 ]; then
    echo "-       $name: no time left"
    return 0
  fi
  echo "== $name: $*" >>"$log"
  timeout -k 5 "$most" "$@" >>"$log" 2>&1 || status=$?
  case $status in
    0) echo "ok      $name ($((SECONDS - start)) s)" ;;
    124 | 137) echo "-       $name: not finished in $most s" ;;
    *)
      echo "FAILED  $name ($((SECONDS - start)) s, exit code $status), see $log"
      failures=$((failures + 1))
      ;;
  esac
  return "$status"
}

hangs() { [ "$1" -eq 124 ] || [ "$1" -eq 137 ]; }

# A step that should end in its time, and leaves some to the measurements: a kernel that hangs is a failure, and
# so is a test that was not run.
kept=200
check() {  # name, seconds, command...
  local name=$1 most=$2 status=0
  shift 2
  [ "$most" -le $(($(left) - kept)) ] || most=$(($(left) - kept))
  if [ "$most" -lt 10 ]; then
    echo "FAILED  $name: no time left"
    failures=$((failures + 1))
    return 124
  fi
  step "$name" "$most" "$@" || status=$?
  if hangs "$status"; then failures=$((failures + 1)); fi
  return "$status"
}

# Of this card alone; "native" needs CMake 3.24.
architecture=native
if command -v nvidia-smi >/dev/null; then
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .)
  case $capability in '' | *[!0-9]*) ;; *) architecture=$capability-real ;; esac
fi

# Warnings are no errors here: another compiler than ours may have new ones. Kernels are optimized by several
# threads each, for one file of them would take the most time of all.
flags=(-DNIBBLE_CUDA=ON "-DCMAKE_CUDA_ARCHITECTURES=$architecture")
keep_going=(-k)
if command -v ninja >/dev/null; then flags+=(-G Ninja) keep_going=(-k 0); fi
if grep -q -- --split-compile <<<"$(nvcc --help 2>/dev/null)"; then
  flags+=(-DCMAKE_CUDA_FLAGS=--split-compile=0)
fi
brought=$PWD/.packages/usr  # by bring-packages.sh
if [ -d "$brought" ]; then
  l=$brought/lib
  flags+=("-DCMAKE_PREFIX_PATH=$brought" "-DPCRE2_LIBRARY=$l/libpcre2-8.a"
    "-DEDITLINE_LIBRARY=$l/libedit.a;$l/libbsd.a;$l/libmd.a;$l/libtinfo.a")
fi
if ! check "configure" 120 cmake -S . -B "$build" "${flags[@]}"; then
  tail -30 "$log"
  echo "Without a network, bring the packages along: see tests/gpu/bring-packages.sh."
  exit 1
fi
# Everything that compiles is built, so that a failure in one place leaves the others' results.
status=0
step "build" 420 cmake --build "$build" --parallel "$(nproc)" --target test_cuda_card --target nibble \
  -- "${keep_going[@]}" || status=$?
[ "$status" -eq 0 ] || grep -E "error[: ]|Error " "$log" | head -20
if hangs "$status"; then failures=$((failures + 1)); fi  # what is there now may be of an earlier build
test=$build/tests/test_cuda_card nibble=$build/tools/nibble

# Some machines let no tool at their card (gVisor: "Device not supported", error 999); found out once, with the
# smallest test. Then there is a reason.
sanitizer_asked="" no_sanitizer=""
ask_sanitizer() {
  [ -z "$sanitizer_asked" ] || return 0
  sanitizer_asked=yes
  if ! command -v compute-sanitizer >/dev/null; then
    no_sanitizer="compute-sanitizer is not installed"
    return 0
  fi
  local said line
  said=$(timeout -k 5 "$(at_most 30)" compute-sanitizer --tool memcheck "$test" -tc="a letter*" 2>&1)
  printf '== compute-sanitizer, asked\n%s\n' "$said" >>"$log"
  line=$(grep -m 1 -iE "device not supported|error 999|unknown error" <<<"$said")
  [ -z "$line" ] || no_sanitizer="compute-sanitizer cannot use the card on this machine (${line##*= })"
}

# What a tool of the sanitizer says of some tests. One that has no time to end may have found something.
sanitize() {  # tool, name, seconds, test cases
  local tool=$1 name="$1, $2" status=0 before
  before=$(wc -l <"$log")
  step "$name" "$3" compute-sanitizer --tool "$tool" --error-exitcode 1 "$test" -d -tc="$4" || status=$?
  if hangs "$status" && tail -n +$((before + 1)) "$log" |
    grep -E "^=========.*(Invalid __|Misaligned|Out-of-range|Race reported|Potential (RAW|WAR|WAW))" >/dev/null; then
    echo "FAILED  $name: see $log"
    failures=$((failures + 1))
  fi
  return "$status"
}

# Tests come before measurements, also after a build that took long.
[ "$(left)" -ge $((kept + 60)) ] || kept=$(($(left) - 60))
[ "$kept" -ge 0 ] || kept=0

models="a model*"
if [ -x "$test" ]; then
  # A failed launch leaves nothing working in its process: then each op runs in one of its own.
  if ! check "ops and models against the CPU" 180 "$test"; then
    grep -E "ERROR|error [0-9]|values:|logged:" "$log" | head -40
    for op in $(sed -n 's/^const OpDef \([a-z_]*\)_op.*/\1/p' ggml/ops/*.cpp); do
      status=0
      NIBBLE_OP=$op check "op $op" 20 "$test" -tc="every op*" || status=$?
      if hangs "$status"; then break; fi  # the others would wait, too
    done
    check "attention" 20 "$test" -tc="*attention*"
    check "models" 20 "$test" -tc="$models"
    ask_sanitizer
    if [ -z "$no_sanitizer" ]; then
      sanitize memcheck "after a failure" 40 "$models" || grep "=========" "$log" | head -30
    fi
  elif grep "no GPU: nothing was tested" "$log" >/dev/null; then
    echo "FAILED  ops and models against the CPU: there was no GPU"
    failures=$((failures + 1))
  fi
fi

if [ -x "$nibble" ]; then
  tokens() { timeout "$(at_most 60)" "$nibble" run -p "Once upon a time" -n 40 --temp 0 --raw "$@" 2>>"$log"; }
  on_gpu=$(tokens --device cuda:0)
  if [ -z "$on_gpu" ]; then
    echo "FAILED  greedy text of the bundled model, see $log"
    failures=$((failures + 1))
  elif [ "$on_gpu" = "$(tokens --device cpu)" ]; then
    echo "ok      greedy text of the bundled model"
  else
    echo "differs greedy text of the bundled model (other arithmetic: a near tie, or a bug if it is nonsense)"
    echo "        $on_gpu" | head -5
  fi

  # The most telling first; memcheck and racecheck keep their time until they have had it.
  reserve=130
  measure() {
    local most=$(($(left) - reserve))
    [ "$most" -le 60 ] || most=60
    echo
    echo "== $*"
    if [ "$most" -lt 10 ]; then
      echo "no time left"
    else
      local status=0
      timeout -k 5 "$most" "$nibble" bench --device cuda:0 "$@" 2>&1 || status=$?
      [ "$status" -eq 0 ] || echo "(exit code $status: the line above says why, or $most s were over)"
    fi
  }
  measure --shape llama-3.1-8b --type int4 -p 512,4096 -n 64 -r 2
  measure --shape llama-3.1-8b --type bf16 -p 512,4096 -n 64 -r 2
  measure --shape llama-3.2-1b --type int4 -p 512,4096 -n 64 -r 2
  measure --shape llama-3.2-1b --type bf16 -p 512,4096 -n 64 -r 2
  # Of experts; the last, for 17 GB of weights may take all the time that it has.
  measure --shape qwen3-30b-a3b --type int4 -p 2048 -n 32 -r 1
  echo
fi

# Small cases of what only a card can contradict: products of matrices and of warpgroups, alone and in models,
# and attention of many rows.
products="warpgroups multiply up*,warpgroups multiply by*,many rows have*,one row is*,some rows are*,a batch is*"
wide="attention by warpgroups*,attention on the GPU equals*,many rows share*"
if [ -x "$test" ]; then
  ask_sanitizer
  for tool in memcheck racecheck; do
    if [ -n "$no_sanitizer" ]; then
      echo "-       $tool: $no_sanitizer"
      continue
    fi
    sanitize "$tool" "products" 30 "$products"
    sanitize "$tool" "attention and joined launches" 30 "$wide"
  done
fi

if [ -x "$nibble" ]; then
  reserve=0
  measure --shape llama-3.1-8b --type int4 -p 0 -n 32 -r 2 --sequences 1,8,32,48,64
  measure --shape llama-3.1-8b --type int4 -p 4096 -n 0 -r 2 --batch 512
  measure --shape llama-3.1-8b --type int4 -p 4096 -n 0 -r 2 --deterministic
  measure --shape llama-3.1-8b --type int8 -p 512,4096 -n 64 -r 2
  measure --shape llama-3.1-8b --type nf4 -p 512,4096 -n 64 -r 2
  measure --shape llama-3.2-1b --type int4 -p 0 -n 32 -r 2 -d 32000
  measure --shape llama-3.2-1b --type int8 -p 512,4096 -n 64 -r 2
  measure --shape llama-3.2-1b --type nf4 -p 512,4096 -n 64 -r 2
  measure --shape gpt-oss-20b --layers 6 --type int8 -p 512 -n 64 -r 2
  echo
fi

# A model's own launches, if there is time.
if [ -x "$test" ] && [ -z "$no_sanitizer" ]; then
  for tool in memcheck racecheck; do sanitize "$tool" "whole models" 90 "$models"; done
fi
[ -x "$test" ] && [ -x "$nibble" ] && [ "$failures" -eq 0 ]
